//! Rules of a site's own: conditions in CEL over one view of a VM, and other levels
//! for rules that there are.
//!
//! A rules file ([`SiteRules::read`]) is whole or it is refused. [`view`] is what its
//! conditions see. Whoever reads files finds the rules files, too; nothing here does.

mod bounds;
mod comprehension;
mod condition;
mod examples;
mod file;
mod glob;
mod levels;
mod place;
mod run;
mod say;
mod types;
mod value;
mod variables;
pub mod view;

pub use examples::{ExampleResult, try_examples};
pub use file::{BadRules, RulesDocument, SiteRule, SiteRules};
pub use levels::{SuppressedFinding, Suppressor, settle};
pub use say::{explain, list};

pub(crate) use run::PreparedRules;

#[cfg(test)]
mod tests;
