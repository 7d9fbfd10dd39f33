//! Obtains what a case needs, from the registries' own clients. A run never does.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use super::case::Case;
use super::case::Home;
use crate::command::finished;
use crate::engine::experiment::Ended;

/// Why a case cannot run yet; `None` if it can.
pub fn missing(case: &Case, home: &Home) -> Option<String> {
    let packages = absent(&case.install.apt);
    if !packages.is_empty() {
        return Some(format!("Debian's {} missing", packages.join(", ")));
    }
    let is_done = || {
        let wanted = print_of(case);
        fs::read_to_string(stamp(home)).is_ok_and(|there| wanted.is_ok_and(|it| it == there))
    };
    (needs_folder(case) && !is_done()).then(|| "its packages are not installed".to_string())
}

/// Why a case cannot run yet, and the command of the lab that changes it; `None` if it can.
pub fn obstacle(case: &Case, home: &Home, remedy: &str) -> Option<String> {
    let missing = missing(case, home)?;
    Some(format!("{}: {missing} (neap lab {remedy})", case.name))
}

/// Installs what these cases need, and tells how that went.
pub fn install_all<'a>(cases: impl IntoIterator<Item = (&'a Case, &'a Home)>) -> Ended {
    let mut code = 0;
    for (case, home) in cases {
        match install(case, home, &|what| eprintln!("{what}")) {
            Ok(()) => println!("{}: installed", case.name),
            Err(error) => {
                code = 1;
                eprintln!("{}: not installed: {error:#}", case.name);
            }
        }
    }
    Ended::Early(code)
}

/// Installs what is missing; nothing if all is there.
///
/// # Errors
/// If a package cannot be obtained or a program not built.
pub fn install(case: &Case, home: &Home, say: &dyn Fn(&str)) -> anyhow::Result<()> {
    if missing(case, home).is_none() {
        return Ok(());
    }
    from_debian(&absent(&case.install.apt), say)?;
    if !needs_folder(case) {
        return Ok(());
    }
    fs::create_dir_all(&home.env).with_context(|| format!("cannot make {:?}", home.env))?;
    // An installation that breaks off leaves none that counts.
    let _ = fs::remove_file(stamp(home));
    for mut command in commands(case, home) {
        let words = command.get_args().map(|word| word.to_string_lossy());
        let words: Vec<_> = words.collect();
        let program = command.get_program().to_string_lossy();
        say(&format!("{}: {program} {}", case.name, words.join(" ")));
        finished(&mut command)?;
    }
    fs::write(stamp(home), print_of(case)?).context("cannot note what is installed")
}

/// Whether anything but Debian's packages is needed.
fn needs_folder(case: &Case) -> bool {
    let install = &case.install;
    let lists = [
        &install.pip,
        &install.npm,
        &install.gem,
        &install.cargo,
        &install.build,
    ];
    lists.iter().any(|list| !list.is_empty()) || manifest(case).is_file()
}

fn manifest(case: &Case) -> std::path::PathBuf {
    case.folder.join("Cargo.toml")
}

/// The commands that fill the case's folder, in order.
fn commands(case: &Case, home: &Home) -> Vec<Command> {
    let (install, env) = (&case.install, home.env.as_path());
    let mut commands = Vec::new();
    let words = |item: &String| -> Vec<String> {
        let filled = home.filled(item, None);
        filled.split_whitespace().map(str::to_string).collect()
    };
    let mut add = |program: &Path, arguments: &[&str], rest: Vec<String>| {
        let mut command = Command::new(program);
        command.args(arguments).args(rest);
        home.equip(&mut command);
        commands.push(command);
    };
    let text = |path: &Path| path.to_string_lossy().into_owned();
    if !install.pip.is_empty() {
        let python = env.join("bin/python3");
        if !python.is_file() {
            add(Path::new("python3"), &["-m", "venv"], vec![text(env)]);
        }
        let pip = "-m pip install --quiet --disable-pip-version-check".split(' ');
        let packages = install.pip.iter().flat_map(words).collect();
        add(&python, &Vec::from_iter(pip), packages);
    }
    if !install.npm.is_empty() {
        let prefix = text(env);
        let npm = ["install", "--no-audit", "--no-fund", "--prefix", &prefix];
        let packages = install.npm.iter().flat_map(words).collect();
        add(Path::new("npm"), &npm, packages);
    }
    for gem in &install.gem {
        let (folder, programs) = (text(&env.join("gems")), text(&env.join("gems/bin")));
        let place = ["--install-dir", &folder, "--bindir", &programs];
        let arguments = [&["install", "--no-document"], &place[..]].concat();
        add(Path::new("gem"), &arguments, words(gem));
    }
    for package in &install.cargo {
        let root = text(env);
        let cargo = ["install", "--locked", "--root", &root];
        add(Path::new("cargo"), &cargo, words(package));
    }
    if manifest(case).is_file() {
        let (manifest, target) = (text(&manifest(case)), text(&env.join("target")));
        let place = ["--manifest-path", &manifest, "--target-dir", &target];
        let arguments = [&["build", "--release", "--quiet"], &place[..]].concat();
        add(Path::new("cargo"), &arguments, vec![]);
    }
    for line in &install.build {
        add(Path::new("sh"), &["-ec"], vec![home.quoted(line)]);
    }
    commands
}

/// Those of Debian's packages that are not installed.
fn absent(packages: &[String]) -> Vec<String> {
    let is_there = |package: &&String| {
        let query = Command::new("dpkg-query")
            .args(["-W", "-f", "${db:Status-Status}", package])
            .output();
        query.is_ok_and(|output| output.stdout == b"installed")
    };
    let absent = packages.iter().filter(|package| !is_there(package));
    absent.cloned().collect()
}

/// Debian's scripts ask this file before they start a server.
const POLICY: &str = "/usr/sbin/policy-rc.d";

fn from_debian(packages: &[String], say: &dyn Fn(&str)) -> anyhow::Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    // SAFETY: the call has no precondition.
    let is_root = unsafe { libc::geteuid() } == 0;
    let list = packages.join(" ");
    ensure!(is_root, "as root: apt-get install {list}");
    say(&format!("apt-get install {list}"));
    let is_ours = !Path::new(POLICY).exists();
    if is_ours {
        fs::write(POLICY, "#!/bin/sh\nexit 101\n")?;
        finished(Command::new("chmod").args(["755", POLICY]))?;
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["-qq", "-y", "-o", "DPkg::Lock::Timeout=600"]);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        finished(command.args(arguments))
    };
    let install = [&["install", "--no-install-recommends"], &refs(packages)[..]].concat();
    let done = apt(&["update"]).and_then(|_| apt(&install));
    if is_ours {
        fs::remove_file(POLICY)?;
    }
    done?;
    let left = absent(packages);
    if left.is_empty() {
        Ok(())
    } else {
        bail!("apt-get did not install {}", left.join(" "))
    }
}

fn refs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn stamp(home: &Home) -> std::path::PathBuf {
    home.env.join(".installed")
}

/// What identifies an installation: what is needed, and the case's own files.
fn print_of(case: &Case) -> anyhow::Result<String> {
    let mut text = format!("{:?}\n", case.install);
    let mut files: Vec<_> = fs::read_dir(&case.folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    let sources = fs::read_dir(case.folder.join("src"));
    files.extend(sources.into_iter().flatten().flatten().map(|e| e.path()));
    files.sort();
    for file in files.into_iter().filter(|file| file.is_file()) {
        let name = file.strip_prefix(&case.folder)?.to_string_lossy();
        if !["README.md", "case.toml"].contains(&&*name) {
            let mut hash = DefaultHasher::new();
            fs::read(&file)?.hash(&mut hash);
            text.push_str(&format!("{name} {:016x}\n", hash.finish()));
        }
    }
    Ok(text)
}
