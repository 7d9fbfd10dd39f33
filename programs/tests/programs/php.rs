//! PHP from the distribution. It loads its extensions with `RTLD_DEEPBIND`, which binds their
//! `malloc` past a preload. Under allocators that do not remove the flag, it crashes at start.

use neap_programs::{Need, Outcome, Program, World};
use std::time::Duration;

const NEEDS: &[Need] = &[
    Need {
        command: "/usr/bin/php",
        package: "php-cli",
    },
    Need {
        command: "/usr/lib/php/*/mbstring.so",
        package: "php-mbstring",
    },
    Need {
        command: "/usr/lib/php/*/dom.so",
        package: "php-xml",
    },
];

pub const PHP: Program = Program {
    name: "php",
    needs: NEEDS,
    limit: Duration::from_secs(60),
    transcript: |world| work(world, "1"),
};

/// With every block of the engine from malloc.
pub const PHP_MALLOC: Program = Program {
    name: "php_malloc",
    transcript: |world| work(world, "0"),
    ..PHP
};

fn work(world: &World, engine_allocator: &str) -> Outcome<String> {
    world.write("work.php", include_str!("../inputs/work.php"))?;
    let mut command = world.command("/usr/bin/php");
    command
        .args(["work.php", world.size("1", "10")])
        .env("USE_ZEND_ALLOC", engine_allocator);
    world.succeed(command)
}
