//! The experiment: every situation under every allocator.

use super::contenders::Contender;
use super::outcome::judge;
use super::programs::Programs;
use super::situations::{self, Class, Situation};
use super::tables;
use crate::engine::campaign::Campaign;
use crate::engine::experiment::{Ended, Experiment, PLAIN, available};
use crate::engine::record::Figure;
use crate::engine::settings::{JSON, NEAP, PEERS, QUICK, RECORDS, SEED, Setting, Settings};
use crate::peers::{self, Places};

/// Wrong steps, and what becomes of them.
pub const EXPERIMENT: Experiment = Experiment {
    name: "security",
    about: "Which of 116 memory errors each allocator stops before they do harm",
    settings: &[
        NEAP,
        PEERS,
        Setting::names(
            "only",
            "Only these classes of errors, such as \"double free\"",
        ),
        QUICK,
        JSON,
        RECORDS,
        SEED,
    ],
    run: carry_out,
    tables: tables::by_class,
    notes: || NOTES.to_string(),
    ..PLAIN
};

const NOTES: &str = "The situations are those of mimalloc-bench's security programs, class by \
    class; the programs are this project's own. --quick runs the small sizes only. hardened_malloc \
    takes part once `neap-lab peers --peers hardened,hardened-light` has built it.";

/// The size that a quick run leaves it at, of those situations that come in several.
const QUICK_SIZES: [&str; 2] = ["8", "0"];

/// Runs every situation once under every allocator.
fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let classes = settings.chosen(("only", "class"), &Class::ALL, Class::name)?;
    let is_chosen = |one: &Situation| {
        classes.contains(&one.class) && (!settings.is_quick() || QUICK_SIZES.contains(&one.size))
    };
    let mut chosen = situations::all();
    chosen.retain(is_chosen);

    let places = Places::new(settings.path("neap"))?;
    let asked = peers::select_with_hardened(&settings.names("peers"))?;
    let ready = available(&asked, |peer| peers::locate(peer, &places))?;
    let options = [("situations", chosen.len().to_string())];
    campaign.head(&options, &ready);

    let programs = Programs::compile()?;
    chosen.retain(|one| match programs.lacks(one) {
        Some(reason) => {
            campaign.leave_out(format!("{}: {reason}", one.kind));
            false
        }
        None => true,
    });
    let contenders: Vec<Contender> = ready.into_iter().flat_map(Contender::of).collect();
    campaign.rounds(1, (&chosen, &contenders), |situation, contender| {
        let (outcome, shown) = judge(
            &programs.run(situation, &contender.ready)?,
            &contender.ready.library,
        )?;
        Ok(vec![
            Figure::text(tables::OUTCOME, outcome.name()),
            Figure::text("shown", shown),
        ])
    });
    Ok(Ended::Measured)
}
