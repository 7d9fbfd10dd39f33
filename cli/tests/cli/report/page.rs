//! The page in a real browser.

use super::browser::{Browser, is_there};
use super::fabricated::{HOSTILE, recording};
use crate::stage::{neap, printed, room};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The page of the fabricated recording.
fn page(room: &TempDir) -> PathBuf {
    let (file, page) = (room.path().join("recording"), room.path().join("page.html"));
    fs::write(&file, recording()).unwrap();
    printed(neap().arg("report").arg(&file).arg("-o").arg(&page));
    page
}

fn opened(page: &Path, width: u32, scheme: &str) -> Browser {
    let mut browser = Browser::new();
    browser.pretend(width, scheme);
    browser.open(page);
    browser
}

/// The text of the `n`-th row or button in a list of elements.
fn frame(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('#graph button')].find((at) => at.textContent === '{name}')"
    )
}

#[test]
fn every_part_is_drawn_and_nothing_is_fetched_or_run() {
    if !is_there() {
        return;
    }
    let room = room();
    let page = page(&room);
    let mut browser = opened(&page, 1100, "light");
    for part in [
        "verdict",
        "timeline",
        "flame",
        "sites",
        "ledger",
        "classes",
        "stacks",
        "counters",
        "processes",
        "settings",
    ] {
        let height = browser.number(&format!("document.getElementById('{part}').offsetHeight"));
        assert!(height > 40.0, "{part}: {height}");
    }
    assert_eq!(
        browser.text("document.querySelector('h1').textContent"),
        HOSTILE
    );
    assert_eq!(
        browser.number("document.querySelectorAll('#chart path').length"),
        9.0
    );
    assert!(browser.number("document.querySelectorAll('#graph button').length") >= 7.0);
    assert!(browser.number("document.querySelectorAll('.finding').length") >= 2.0);
    assert_eq!(browser.text("typeof window.hacked"), "undefined");
    assert_eq!(
        browser.number("document.querySelectorAll('img').length"),
        0.0
    );
    assert_eq!(browser.number("document.scripts.length"), 3.0);
    browser.picture("wide-light");
    let requests = browser.requests();
    assert!(
        requests
            .iter()
            .all(|url| url.starts_with("file:") && url.ends_with("page.html")
                || url.starts_with("data:")),
        "{requests:?}"
    );
    assert!(
        browser.complaints().is_empty(),
        "{:#?}",
        browser.complaints()
    );
}

#[test]
fn the_flame_graph_opens_and_closes_by_clicks() {
    if !is_there() {
        return;
    }
    let room = room();
    let mut browser = opened(&page(&room), 1100, "light");
    let width = |browser: &mut Browser, name: &str| {
        browser.number(&format!(
            "{}.offsetWidth / document.getElementById('graph').offsetWidth",
            frame(name)
        ))
    };
    let closed = width(&mut browser, "plant_waste");
    assert!(closed < 0.9, "{closed}");
    browser.click(&frame("plant_waste"));
    assert!(width(&mut browser, "plant_waste") > 0.99);
    assert!(
        browser
            .text("document.getElementById('status').textContent")
            .starts_with("plant_waste (<b>main.c")
    );
    assert_eq!(
        browser.value(&format!("{} === undefined", frame("plant_leak"))),
        true
    );
    browser.click(&frame("serve"));
    assert!(width(&mut browser, "serve") > 0.99 && width(&mut browser, "plant_waste") < 0.9);
    browser.click("document.getElementById('reset')");
    assert_eq!(width(&mut browser, "plant_waste"), closed);
    assert_eq!(
        browser.value("document.getElementById('reset').disabled"),
        true
    );
    assert!(
        browser.complaints().is_empty(),
        "{:#?}",
        browser.complaints()
    );
}

#[test]
fn frames_are_found_and_other_figures_are_shown() {
    if !is_there() {
        return;
    }
    let room = room();
    let mut browser = opened(&page(&room), 1100, "light");
    browser.click("document.getElementById('find')");
    browser.call(
        "Input.insertText",
        serde_json::json!({"text": "PLANT_LEAK"}),
    );
    assert_eq!(
        browser.number("document.querySelectorAll('#graph .hit').length"),
        1.0
    );
    assert!(
        browser
            .text("document.getElementById('status').textContent")
            .starts_with("Found in 40.0 MiB")
    );
    browser.click("document.getElementById('reset')");
    assert_eq!(
        browser.number("document.querySelectorAll('#graph .hit').length"),
        0.0
    );
    browser.value(
        "(() => { const list = document.getElementById('measure'); list.value = '4'; \
         list.dispatchEvent(new Event('change')); })()",
    );
    let order = browser.number(&format!(
        "{}.offsetWidth - {}.offsetWidth",
        frame("plant_waste"),
        frame("plant_leak")
    ));
    assert!(order > 0.0);
    assert!(
        browser.complaints().is_empty(),
        "{:#?}",
        browser.complaints()
    );
}

#[test]
fn the_timeline_tells_its_numbers() {
    if !is_there() {
        return;
    }
    let room = room();
    let mut browser = opened(&page(&room), 1100, "light");
    let moment = "document.getElementById('moment').textContent";
    let sum = "document.querySelector('[data-band=sum]').textContent";
    let rest = browser.text(moment);
    assert!(rest.starts_with("Near the peak, at 9."), "{rest}");
    let peak = browser.text(sum);
    assert!(peak.ends_with("MiB"), "{peak}");
    browser.hover("document.getElementById('chart')", 0.5);
    let middle = browser.text(moment);
    assert!(
        middle.starts_with("at 4.") || middle.starts_with("at 5."),
        "{middle}"
    );
    assert_ne!(browser.text(sum), peak);
    assert_eq!(
        browser.value("document.getElementById('cursor').hidden"),
        false
    );
    browser.hover("document.querySelector('h1')", 0.1);
    assert_eq!((browser.text(moment), browser.text(sum)), (rest, peak));
    assert!(
        browser.complaints().is_empty(),
        "{:#?}",
        browser.complaints()
    );
}

#[test]
fn it_is_dark_where_that_is_preferred_and_fits_a_phone() {
    if !is_there() {
        return;
    }
    let room = room();
    let page = page(&room);
    let mut browser = opened(&page, 360, "dark");
    let back = "getComputedStyle(document.body).backgroundColor";
    let ink = "getComputedStyle(document.body).color";
    let dark = (browser.text(back), browser.text(ink));
    browser.picture("narrow-dark");
    for scheme in ["dark", "light"] {
        browser.pretend(360, scheme);
        assert_eq!(
            browser.number("document.documentElement.scrollWidth"),
            360.0
        );
        assert_eq!(
            browser.number("document.documentElement.clientWidth"),
            360.0
        );
    }
    assert_ne!(dark, (browser.text(back), browser.text(ink)));
    browser.picture("narrow-light");
    browser.pretend(1100, "dark");
    browser.picture("wide-dark");
    assert!(
        browser.complaints().is_empty(),
        "{:#?}",
        browser.complaints()
    );
}
