//! Policy over the whole table, and what holds for every parser.
