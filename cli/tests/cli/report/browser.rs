//! Drives a real, headless browser by the DevTools protocol over two pipes, without a port or other
//! tools.

use crate::skips::skipped;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Names of the browser's command.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Whether there is a browser; prints a message if not. With `REQUIRE_ALL=1` its absence is a
/// failure.
pub fn is_there() -> bool {
    let found = command().is_some();
    if !found {
        skipped("no browser here (Debian: apt install chromium)");
    }
    found
}

fn command() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let files = std::env::split_paths(&path).flat_map(|room| NAMES.map(|name| room.join(name)));
    files.into_iter().find(|file| file.is_file())
}

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: PipeWriter,
    from: BufReader<PipeReader>,
    session: Option<String>,
    next: u64,
    /// Events that the browser sent.
    pub events: Vec<Value>,
    _home: TempDir,
}

impl Browser {
    pub fn new() -> Self {
        let home = crate::stage::room();
        let (theirs_in, to) = std::io::pipe().unwrap();
        let (from, theirs_out) = std::io::pipe().unwrap();
        let (theirs_in, theirs_out) = (high(&theirs_in), high(&theirs_out));
        let mut command = Command::new(command().unwrap());
        command
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args([
                "--disable-dev-shm-usage",
                "--remote-debugging-pipe",
                "--hide-scrollbars",
            ])
            .arg(format!("--user-data-dir={}", home.path().display()))
            .arg("about:blank")
            .env("HOME", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let (input, output) = (theirs_in.as_raw_fd(), theirs_out.as_raw_fd());
        // SAFETY: dup2 is allowed between fork and exec; both descriptors are open and are neither
        // 3 nor 4.
        unsafe {
            command.pre_exec(move || {
                match libc::dup2(input, 3) == 3 && libc::dup2(output, 4) == 4 {
                    true => Ok(()),
                    false => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let child = command.spawn().unwrap();
        let mut browser = Self {
            child,
            to,
            from: BufReader::new(from),
            session: None,
            next: 0,
            events: Vec::new(),
            _home: home,
        };
        browser.attach();
        browser
    }

    fn attach(&mut self) {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = self.call(
            "Target.attachToTarget",
            json!({"targetId": target["targetId"], "flatten": true}),
        );
        self.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Calls a method of the protocol. Events that arrive meanwhile are kept in `events`.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut text = message.to_string().into_bytes();
        text.push(0);
        self.to.write_all(&text).unwrap();
        loop {
            let answer = self.receive();
            if answer["id"] == json!(self.next) {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    fn receive(&mut self) -> Value {
        let mut text = Vec::new();
        self.from.read_until(0, &mut text).unwrap();
        assert_eq!(text.pop(), Some(0), "the browser has ended");
        serde_json::from_slice(&text).unwrap()
    }

    /// Opens a file and waits until it is loaded.
    pub fn open(&mut self, file: &Path) {
        self.events.clear();
        let url = format!("file://{}", file.display());
        self.call("Page.navigate", json!({"url": url}));
        let loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events.iter().any(loaded) {
            let event = self.receive();
            self.events.push(event);
        }
    }

    /// Evaluates an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let answer = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// Like [`Self::value`], as text.
    pub fn text(&mut self, expression: &str) -> String {
        let value = self.value(expression);
        value
            .as_str()
            .unwrap_or_else(|| panic!("{expression}: {value}"))
            .to_owned()
    }

    /// Like [`Self::value`], as a number.
    pub fn number(&mut self, expression: &str) -> f64 {
        let value = self.value(expression);
        value
            .as_f64()
            .unwrap_or_else(|| panic!("{expression}: {value}"))
    }

    /// Clicks the middle of the element that an expression returns.
    pub fn click(&mut self, element: &str) {
        self.mouse("mouseMoved", element, 0.5);
        self.mouse("mousePressed", element, 0.5);
        self.mouse("mouseReleased", element, 0.5);
    }

    /// Moves the mouse over an element, to this fraction of its width.
    pub fn hover(&mut self, element: &str, part: f64) {
        self.mouse("mouseMoved", element, part);
    }

    fn mouse(&mut self, kind: &str, element: &str, part: f64) {
        let place = self.value(&format!(
            "(() => {{ const at = {element}; at.scrollIntoView({{block: 'center'}}); const box = \
             at.getBoundingClientRect(); \
             return [box.left + box.width * {part}, box.top + box.height / 2]; }})()"
        ));
        let pressed = i32::from(kind != "mouseMoved");
        self.call(
            "Input.dispatchMouseEvent",
            json!({"type": kind, "x": place[0], "y": place[1], "button": if pressed == 1 { "left" } else { "none" }, "clickCount": pressed}),
        );
    }

    /// Sets the window's width and the preferred colour scheme.
    pub fn pretend(&mut self, width: u32, scheme: &str) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}),
        );
        self.call(
            "Emulation.setEmulatedMedia",
            json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]}),
        );
    }

    /// Saves a picture of the whole page with the tests' files, for people to look at.
    pub fn picture(&mut self, name: &str) {
        use base64::Engine;
        let answer = self.call(
            "Page.captureScreenshot",
            json!({"captureBeyondViewport": true}),
        );
        let data = answer["data"].as_str().unwrap();
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(data)
            .unwrap();
        let room = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
        fs::create_dir_all(&room).unwrap();
        File::create(room.join(format!("{name}.png")))
            .unwrap()
            .write_all(&bytes)
            .unwrap();
    }

    /// All complaints of the page: exceptions, console errors and entries of the browser's log.
    pub fn complaints(&self) -> Vec<&Value> {
        let is_complaint = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => event["params"]["type"] == "error",
            Some("Log.entryAdded") => event["params"]["entry"]["level"] != "verbose",
            _ => false,
        };
        self.events.iter().filter(is_complaint).collect()
    }

    /// The addresses of everything that the page requested.
    pub fn requests(&self) -> Vec<&str> {
        self.events
            .iter()
            .filter(|event| event["method"] == "Network.requestWillBeSent")
            .filter_map(|event| event["params"]["request"]["url"].as_str())
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same pipe under a number other than the two that the browser expects.
fn high(pipe: &impl AsRawFd) -> OwnedFd {
    // SAFETY: the descriptor is open; only the returned value owns the new one.
    unsafe {
        let new = libc::fcntl(pipe.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 20);
        assert!(new >= 20);
        OwnedFd::from_raw_fd(new)
    }
}
