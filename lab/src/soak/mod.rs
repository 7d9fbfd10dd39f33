//! The soak: mixed real load for half an hour, under which every answer must be right and no
//! process may grow. A member of the load is a directory of `lab/soak`, in the form of a case.
//!
//! | file | contents |
//! |---|---|
//! | `member` | one program of the load, from its start to its end |
//! | `observers` | the commands that look into the members meanwhile |
//! | `guards` | guarded samples of the members |
//! | `growth` | how much memory grew, from a course |
//! | `views` | the table and the picture |
//! | `campaign` | all members at once |

pub mod campaign;
mod growth;
mod guards;
mod member;
mod observers;
mod views;
