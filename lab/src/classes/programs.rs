//! Records the sizes that real programs request. Each runs under Neap in the counting mode, and
//! leaves a table of sizes on its status page.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use neap_shared::status_page::{self, SizeFigure};

use super::sizes::Step;
use crate::command;
use crate::programs::which;
use crate::status;

/// A program and its arguments.
pub struct Program {
    /// Its name in the record.
    pub name: &'static str,
    /// The command; the system's directories are searched first.
    pub command: &'static str,
    /// Its arguments. `{folder}` stands for an empty directory of its own.
    pub arguments: &'static [&'static str],
    /// Further variables besides the preload.
    pub environment: &'static [(&'static str, &'static str)],
}

const PYTHON: &str = "import json
for _ in range(3):
    document = [{'id': i, 'name': 'name %d' % i, 'tags': ['t%d' % (i % 7)], 'at': {'x': i * 0.5}, \
        'note': 'n' * (i % 200)} for i in range(20000)]
    assert json.loads(json.dumps(document)) == document";
const PERL: &str = "my %h; for my $i (1..200000) { my @w = map { \"w$_\" x ($i % 9) } 1..3; \
    $h{\"key $i\"} = \\@w; } my $n = 0; $n += length join ',', @{$h{$_}} for sort keys %h; print \
    $n";
const JQ: &str = "[range(60000) | {id: ., name: \"name \\(.)\", tags: [\"a\", \"b\"], nested: {x: \
    (. / 3)}}] | group_by(.id % 17) | map(map(.name | ascii_upcase)) | flatten | length";
const SQLITE: &str = "create table t(a integer primary key, b text, c blob); with recursive n(i) \
    as (select 1 union all select i + 1 from n where i < 60000) insert into t select i, 'text ' \
    || i, randomblob(i % 300) from n; create index x on t(b); select count(*), sum(length(c)) \
    from t where b like '%7%'; select group_concat(b) from (select b from t order by c limit \
    2000);";
const RUBY: &str = "h = {}; 120000.times { |i| h[\"key #{i}\"] = [i.to_s * (i % 5), i] }; puts \
    h.values.map { |v| v[0].size }.sum; puts h.keys.sort_by { |k| k.reverse }.first";
const PHP: &str = "for ($i = 0; $i < 200000; $i++) { $a[] = ['id' => $i, 'name' => \
    str_repeat('n', $i % 90)]; } echo strlen(json_encode($a)), \
    count(json_decode(json_encode($a)));";
const NODE: &str = "const a = []; for (let i = 0; i < 100000; i++) a.push({ id: i, name: \
    'n'.repeat(i % 90) }); const zlib = require('zlib'); \
    console.log(JSON.parse(JSON.stringify(a)).length, zlib.gzipSync(JSON.stringify(a)).length)";
#[cfg(target_arch = "x86_64")]
const MULTIARCH: &str = "x86_64-linux-gnu";
#[cfg(not(target_arch = "x86_64"))]
const MULTIARCH: &str = "aarch64-linux-gnu";
const COMPILED: &str = "#include <algorithm>\n#include <iostream>\n#include <map>\n#include \
    <regex>\n#include <string>\n#include <vector>\nint main() { std::map<std::string, \
    std::vector<int>> m; std::regex r(\"a+\"); for (int i = 0; i < 9; i++) \
    m[std::to_string(i)].push_back(i); std::cout << m.size(); }\n";

/// The programs, in the order of the record.
pub const PROGRAMS: &[Program] = &[
    // Not `-I`, with which Python ignores PYTHONMALLOC.
    Program {
        name: "python json",
        command: "python3",
        arguments: &["-s", "-c", PYTHON],
        environment: &[("PYTHONMALLOC", "malloc")],
    },
    Program {
        name: "python plain",
        command: "python3",
        arguments: &["-s", "-c", PYTHON],
        environment: &[],
    },
    Program {
        name: "perl",
        command: "perl",
        arguments: &["-e", PERL],
        environment: &[("PERL_HASH_SEED", "0")],
    },
    Program {
        name: "jq",
        command: "jq",
        arguments: &["-n", JQ],
        environment: &[],
    },
    Program {
        name: "sqlite3",
        command: "sqlite3",
        arguments: &[":memory:", SQLITE],
        environment: &[],
    },
    Program {
        name: "ruby",
        command: "ruby",
        arguments: &["--disable=gems", "-e", RUBY],
        environment: &[],
    },
    Program {
        name: "php",
        command: "php",
        arguments: &["-n", "-d", "memory_limit=-1", "-r", PHP],
        environment: &[("USE_ZEND_ALLOC", "0")],
    },
    Program {
        name: "node",
        command: "node",
        arguments: &["-e", NODE],
        environment: &[],
    },
    Program {
        name: "g++",
        command: "cc1plus",
        arguments: &[
            "-quiet",
            "-imultiarch",
            MULTIARCH,
            "-O2",
            "{folder}/input.cc",
            "-o",
            "{folder}/output.s",
        ],
        environment: &[],
    },
    Program {
        name: "redis",
        command: "redis-server",
        arguments: &[
            "--port",
            "0",
            "--unixsocket",
            "{folder}/redis.sock",
            "--save",
            "",
        ],
        environment: &[],
    },
];

/// Longest wait for a program's status page.
const LONGEST_START: Duration = Duration::from_secs(10);

impl Program {
    /// Runs it under `library` and returns its sizes.
    ///
    /// # Errors
    /// If it is not installed, fails, or has no table of sizes.
    pub fn sizes(&self, library: &Path) -> anyhow::Result<Vec<Step>> {
        let folder = Scratch::new()?;
        std::fs::write(folder.0.join("input.cc"), COMPILED)?;
        let mut child = self.start(library, &folder.0)?;
        let status_page = status_page_of(&mut child);
        let ended = match self.command {
            "redis-server" => serve(&mut child, &folder.0),
            _ => command::wait(&mut child, command::LONGEST).map(|status| status.success()),
        };
        ensure!(ended?, "{} failed", self.name);
        let steps = steps(&status_page?)?;
        ensure!(
            !steps.is_empty(),
            "{} left an empty table of sizes",
            self.name
        );
        Ok(steps)
    }

    fn start(&self, library: &Path, folder: &Path) -> anyhow::Result<Child> {
        let place = folder.to_string_lossy();
        let argument = |text: &&str| text.replace("{folder}", &place);
        let mut command = Command::new(self.file()?);
        command
            .args(self.arguments.iter().map(argument))
            .envs(self.environment.iter().copied())
            .env("LD_PRELOAD", library)
            .env("NEAP_COUNT", "1")
            // A monitored process writes its table once more at its end, even if no monitor
            // listens.
            .env("NEAP_MONITOR", "/no/monitor")
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
            .spawn()
            .with_context(|| format!("cannot run {}", self.command))
    }

    /// The distribution's own program. A version manager's shim would otherwise be counted in its
    /// place.
    fn file(&self) -> anyhow::Result<PathBuf> {
        if self.command == "cc1plus" {
            let name = command::output(Command::new("g++").arg("-print-prog-name=cc1plus"))?;
            return Ok(PathBuf::from(name.trim()));
        }
        let of_system = Path::new("/usr/bin").join(self.command);
        let here = of_system.is_file().then_some(of_system);
        here.or_else(|| which(self.command))
            .with_context(|| format!("{} is not installed", self.command))
    }
}

/// The status page of a program that was just started, held open beyond its end.
fn status_page_of(child: &mut Child) -> anyhow::Result<File> {
    let start = Instant::now();
    let pid = child.id().to_string();
    loop {
        // The status page may be found a moment before its head is written.
        let found = status::open(&pid, status_page::NAME);
        let told = found.as_ref().map(is_status_page);
        if let (Some(file), Some(Ok(()))) = (found, &told) {
            return Ok(file);
        }
        if let Some(status) = child.try_wait()? {
            bail!("it ended with {status} before its status page was found");
        }
        if start.elapsed() > LONGEST_START {
            told.context("it shows no status page")??;
        }
    }
}

fn is_status_page(file: &File) -> anyhow::Result<()> {
    status::ensure_words(file, status_page::MAGIC, status_page::VERSION)
}

/// The table of sizes on a status page.
fn steps(status_page: &File) -> anyhow::Result<Vec<Step>> {
    let mut steps = Vec::new();
    for index in 0..status_page::SIZES {
        let at = status_page::SIZES_AT + index * size_of::<SizeFigure>();
        let SizeFigure { count, bytes } = status::read(status_page, at)?;
        if count > 0 {
            let up_to = match index + 1 == status_page::SIZES {
                true => usize::MAX,
                // Entry 0 counts requests of zero bytes, which get a block of 8.
                false => index.max(1) * status_page::SIZE_STEP,
            };
            steps.push(Step {
                up_to,
                count,
                bytes,
            });
        }
    }
    Ok(steps)
}

/// Sends requests to a redis-server, then ends it.
fn serve(server: &mut Child, folder: &Path) -> anyhow::Result<bool> {
    let socket = folder.join("redis.sock");
    let start = Instant::now();
    while !socket.exists() {
        ensure!(start.elapsed() < LONGEST_START, "redis-server is not up");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut client = Command::new("redis-benchmark");
    client.arg("-s").arg(&socket);
    client.args([
        "-t",
        "set,get,lpush,hset,zadd",
        "-n",
        "40000",
        "-P",
        "16",
        "-r",
        "20000",
        "-q",
    ]);
    let served = command::output(&mut client);
    let mut stop = Command::new("redis-cli");
    let stopped = command::output(stop.arg("-s").arg(&socket).args(["shutdown", "nosave"]));
    if served.is_err() || stopped.is_err() {
        server.kill()?;
    }
    let ended = command::wait(server, command::LONGEST)?.success();
    served.and(stopped).map(|_| ended)
}

/// A directory that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Scratch> {
        let folder = std::env::temp_dir().join(format!("neap-lab-sizes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {folder:?}"))?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A failure only leaves a directory in the system's temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn a_status_page_that_was_not_made_by_neap_is_refused_and_a_table_is_read() {
        let path =
            std::env::temp_dir().join(format!("neap-lab-status_page-{}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(path).unwrap();
        assert!(steps(&file).is_err());
        file.set_len(status_page::BYTES as u64).unwrap();
        assert_eq!(steps(&file).unwrap(), []);
        let write = |index: usize, words: [u64; 2]| {
            let at = status_page::SIZES_AT + index * size_of::<SizeFigure>();
            file.write_all_at(bytemuck::bytes_of(&words), at as u64)
                .unwrap();
        };
        write(3, [5, 101]);
        write(status_page::SIZES - 1, [1, 40_000]);
        let step = |up_to, count, bytes| Step {
            up_to,
            count,
            bytes,
        };
        assert_eq!(
            steps(&file).unwrap(),
            [step(24, 5, 101), step(usize::MAX, 1, 40_000)]
        );
    }
}
