//! The engine of every experiment: what is measured is data and a workload; how it is repeated,
//! recorded, summarised, printed and drawn is here, once.
//!
//! | file | contents |
//! |---|---|
//! | `experiment` | an experiment as data: its settings, its run, its tables and its picture |
//! | `settings` | the settings on the command line |
//! | `campaign` | interleaved rounds within a time budget; failures, what was left out, progress |
//! | `record` | a named number of a case under a peer; all of them, in a CSV file |
//! | `table` | tables, and numbers for people |
//! | `plot` | charts of panels, as SVG |

pub mod campaign;
pub mod experiment;
pub mod plot;
pub mod record;
pub mod settings;
pub mod table;
