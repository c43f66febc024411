mod cases;
mod exhaustive;
mod hosts;
mod laws;
