//! The inputs of a report, and the inputs that it refuses.

use super::fabricated::{Stack, head, pprof, recording, sample, text};
use crate::stage::{neap, printed, room, said};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn refusal(file: &Path) -> String {
    let output = neap().arg("report").arg(file).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
    said(&output)
}

fn verdict(file: &Path) -> Value {
    serde_json::from_str(&printed(neap().args(["report", "--format=json"]).arg(file))).unwrap()
}

#[test]
fn the_verdict_as_json_names_what_was_planted() {
    let room = room();
    let file = room.path().join("recording");
    fs::write(&file, recording()).unwrap();
    let verdict = verdict(&file);
    let opening = verdict["verdict"].as_str().unwrap();
    assert!(opening.contains("killed by signal 9"), "{opening}");
    let findings = verdict["findings"].to_string();
    for words in ["plant_leak", "plant_waste", "24 bytes in blocks of 32"] {
        assert!(findings.contains(words), "{findings}");
    }
    assert_eq!(verdict["pid"], 77);
    assert!(verdict["ledger_at_peak"]["resident"].as_u64().unwrap() > 100 << 20);
}

#[test]
fn a_profile_alone_gives_the_parts_that_it_has() {
    let room = room();
    let (file, page) = (room.path().join("p.pb.gz"), room.path().join("p.html"));
    let stacks: [Stack; 1] = [(&["main", "forget"], 50_000, 50_000_000, 0)];
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &pprof(&stacks)).unwrap();
    fs::write(&file, packed.finish().unwrap()).unwrap();
    let headline = verdict(&file)["findings"][0]["headline"].clone();
    assert!(headline.to_string().contains("`forget`"), "{headline}");
    printed(neap().arg("report").arg(&file).arg("-o").arg(&page));
    let html = fs::read_to_string(page).unwrap();
    assert!(html.contains("id=\"flame\"") && html.contains("id=\"sites\""));
    assert!(!html.contains("id=\"timeline\"") && !html.contains("id=\"ledger\""));
}

#[test]
fn a_recording_without_its_end_is_used_and_that_is_said() {
    let room = room();
    let file = room.path().join("recording");
    let whole = recording();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let verdict = verdict(&file);
    assert!(
        verdict["notes"][0]
            .as_str()
            .unwrap()
            .contains("ends in the middle of a line")
    );
    assert!(
        verdict["verdict"]
            .as_str()
            .unwrap()
            .contains("how it ended was not seen")
    );
}

#[test]
fn damage_and_other_files_are_refused_with_the_reason() {
    let room = room();
    let file = room.path().join("file");
    fs::write(&file, recording().replacen("\"rss\"", "\"ssr\"", 3)).unwrap();
    assert!(
        refusal(&file).contains(": line 3 is damaged"),
        "{}",
        refusal(&file)
    );
    fs::write(&file, "int main(void) {}").unwrap();
    let neither = "is no recording (neap run --record), no profile (neap run --profile) and no \
                   reports (--guard-file); for a program write: ";
    assert!(refusal(&file).contains(neither));
    fs::write(&file, "").unwrap();
    assert!(refusal(&file).contains("is no recording"));
    fs::write(&file, "neap: stopped\n").unwrap();
    assert!(refusal(&file).contains("has no report of a process"));
    fs::write(&file, b"\x1f\x8bnonsense").unwrap();
    assert!(refusal(&file).contains("file: "), "{}", refusal(&file));
    assert!(refusal(room.path()).contains("not an ordinary file"));
    assert!(refusal(&room.path().join("absent")).contains("No such file"));
}

#[test]
fn a_damaged_profile_inside_a_recording_is_left_out_and_that_is_said() {
    let room = room();
    let file = room.path().join("recording");
    let lines = [
        head(),
        json!({"sample": {"t_ms": 5, "pid": 77, "rss": 1 << 20}}),
        json!({"profile": {"pid": 77, "program": "p", "pprof": "!!"}}),
    ];
    fs::write(&file, text(&lines)).unwrap();
    let notes = verdict(&file)["notes"][0].as_str().unwrap().to_owned();
    assert!(
        notes.contains("profile of process 77 is damaged"),
        "{notes}"
    );
}

#[test]
fn a_program_too_small_for_a_sample_is_not_called_unsampled() {
    let room = room();
    let file = room.path().join("recording");
    let mut head = head();
    for (rate, said) in [
        (
            "",
            "Places in the program were not sampled: record with `neap run --record --sample 512K",
        ),
        (
            "512K",
            "The program was sampled every 512.0 KiB on average, and allocated so little that no \
             sample fell; `neap run --record --sample 4K -- PROGRAM` samples more finely.",
        ),
        (
            "4K",
            "sampled every 4.0 KiB on average, and allocated so little that no sample fell.",
        ),
    ] {
        head["head"]["options"] = match rate {
            "" => json!({}),
            rate => json!({"NEAP_SAMPLE": rate}),
        };
        let end = json!({"event": {"t_ms": 9, "pid": 77, "event": "exited", "status": 0}});
        fs::write(&file, text(&[head.clone(), sample(5, 1), end])).unwrap();
        let opening = verdict(&file)["verdict"].as_str().unwrap().to_owned();
        assert!(opening.contains(said), "{opening}");
    }
}

#[test]
fn a_page_that_cannot_be_written_is_named() {
    let room = room();
    let file = room.path().join("recording");
    fs::write(&file, recording()).unwrap();
    for (page, why) in [
        ("/no/such/page.html", "there is no directory /no/such"),
        ("/dev/full", "No space left"),
    ] {
        let output = neap()
            .arg("report")
            .arg(&file)
            .args(["-o", page])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(
            said(&output).contains(why) && said(&output).contains(page),
            "{}",
            said(&output)
        );
    }
}

#[test]
fn memory_errors_come_first_with_the_reports_of_their_process() {
    let room = room();
    let (file, reports) = (room.path().join("recording"), room.path().join("reports"));
    let mut first = head();
    first["head"]["options"]["NEAP_GUARD_FILE"] = json!(reports);
    let guards = json!({"blocks": 9, "errors": 1});
    let lines = [
        first,
        json!({"event": {"t_ms": 1, "pid": 78, "event": "came", "program": "worker"}}),
        json!({"sample": {"t_ms": 5000, "pid": 77, "rss": 2 << 20}}),
        json!({"sample": {"t_ms": 5000, "pid": 78, "rss": 1 << 20, "guards": guards}}),
    ];
    fs::write(&file, text(&lines)).unwrap();
    let finding = || verdict(&file)["findings"][0].clone();
    // The file of the reports is not there yet.
    assert!(finding()["text"].is_null());
    let theirs = "neap: double free of 0x10 (a block of 24 <bytes)\n  the wrong call by thread 78 of \
                  process 78:\n    #0 0x10\n";
    let others = "neap: of another\n  the wrong call by thread 9 of process 9:\n    #0 0x10\n";
    fs::write(&reports, format!("a secret\n{theirs}{others}")).unwrap();
    let finding = finding();
    assert_eq!(finding["kind"], "memory_error");
    let headline = "Guarded samples found 1 memory error in `worker` (process 78).";
    assert_eq!(
        (&finding["headline"], &finding["text"]),
        (&json!(headline), &json!(theirs))
    );
    let page = room.path().join("page.html");
    let text = printed(neap().arg("report").arg(&file).arg("-o").arg(&page));
    assert!(text.contains("\n    neap: double free of 0x10 "), "{text}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("<pre>neap: double free") && !page.contains("<bytes"));
}
