//! Interpreters that run one script each.

use neap_programs::{Need, Outcome, Program, World};
use std::time::Duration;

pub const PERL: Program = Program {
    name: "perl",
    needs: &[Need {
        command: "/usr/bin/perl",
        package: "perl",
    }],
    limit: Duration::from_secs(60),
    transcript: |world| script(world, "/usr/bin/perl", include_str!("../inputs/work.pl")),
};

pub const RUBY: Program = Program {
    name: "ruby",
    needs: &[Need {
        command: "/usr/bin/ruby",
        package: "ruby",
    }],
    limit: Duration::from_secs(60),
    transcript: |world| script(world, "/usr/bin/ruby", include_str!("../inputs/work.rb")),
};

fn script(world: &World, interpreter: &str, text: &str) -> Outcome<String> {
    world.write("work", text)?;
    world.run(interpreter, &["work", world.size("1", "10")])
}
