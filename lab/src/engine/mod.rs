//! The engine of every experiment: what is measured is data and a workload; how it is repeated,
//! recorded, summarised, printed and drawn is here, once.
//!
//! | file | contents |
//! |---|---|
//! | `experiment` | an experiment as data: its settings, its run, its tables and its pictures |
//! | `settings` | the settings on the command line |
//! | `campaign` | interleaved rounds within a time budget; failures, and what was left out |
//! | `progress` | the progress on standard error |
//! | `figure`, `record` | a named number of a case under a peer; all of them, in a CSV file |
//! | `table` | tables, and numbers for people |
//! | `plot`, `svg` | charts of panels, as SVG |

pub mod campaign;
pub mod experiment;
pub mod figure;
pub mod plot;
pub mod progress;
pub mod record;
pub mod settings;
pub mod svg;
pub mod table;
