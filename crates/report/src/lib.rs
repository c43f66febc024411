//! How results look: terminal text, one self-contained HTML page, CSV and JSON.
//!
//! Pure: data in, text out. The figures are SVG written by this crate itself,
//! because their colours must be style-sheet classes (light, dark and print
//! come from one page) and each mark must say in words what it is. The colours of
//! every page and picture stand in [`palette`], the style of every page in one sheet.
//!
//! What is not here: what samples mean (`stats`), where files are written
//! (`vmlab`).

mod account;
mod account_text;
mod across;
mod count_scope;
mod escape;
mod estimate;
mod export;
mod figure;
mod host_beside;
pub mod host_picture;
mod html;
mod judged;
mod model;
pub mod palette;
mod profile;
mod profile_text;
mod published;
mod quantity;
mod rollout;
mod sentence;
mod terminal;
pub mod trend;
mod verdict;

pub use account::{
    AccountPart, Accounting, HostFact, NoPrice, OtherSetting, PricedEvent, ReasonSource,
    UnfitPrices, UnpricedEvents, VariantAccount,
};
pub use across::{
    ACROSS_VERSION, AcrossGroup, AcrossReport, AcrossVariant, NodeRatio, NodeRow, across_text,
};
pub use count_scope::CountScope;
pub use escape::escape;
pub use estimate::{NO_BOUND_YET, ShownEstimate, ShownInterval, is_bound};
pub use export::{SampleRows, csv, json};
pub use host_beside::{busy, unsteady};
pub use html::{PageWidth, html, page};
pub use model::{
    BootPoint, CellResults, CounterMove, CounterRow, Curve, FurtherVm, HostActivity, InterimLook,
    LabelledText, Method, PublishedClaim, PublishedKind, PublishedValue, Quantile, REPORT_VERSION,
    Report, ReportFact, ReportVariant, ResultGroup, ShownVerdict, Suite, TABLE_SHARES, TimeShare,
    TrialFailure, VariantDisturbance, VariantJudgement, VariantRole, WorkloadLatencies,
};
pub use profile::{FunctionChange, ProfileComparison, ProfileOverhead, ProfiledSide, StackFrame};
pub use quantity::{counted, sample_kind};
pub use rollout::{RolloutPage, RolloutPageLook, RolloutPageMetric, rollout_html};
pub use terminal::{TerminalStyle, terminal};
pub use verdict::{EQUAL, Label, Terms, class_sgr, label, percent, steadiness};
