//! The page that lists the processes.

use super::http::{Response, Status};
use crate::view::View;
use askama::Template;
use neap_shared::stats::Bytes;

#[derive(Template)]
#[template(path = "serve.html")]
struct Page {
    rows: Vec<Row>,
}

struct Row {
    pid: i32,
    program: String,
    state: &'static str,
    process: String,
    arenas: String,
    live: String,
}

/// The page.
pub fn root(views: &[View]) -> Response {
    match page(views).render() {
        Ok(text) => Response::new("text/html; charset=utf-8", text),
        Err(error) => Response::refusal(Status::INTERNAL, &error),
    }
}

fn page(views: &[View]) -> Page {
    let bytes = |bytes| Bytes(bytes).to_string();
    let row = |view: &View| Row {
        pid: view.pid,
        program: crate::failure::shown(&view.program).to_string(),
        state: view.state.word(),
        process: bytes(view.kernel.process_rss),
        arenas: bytes(view.kernel.arenas_rss),
        live: view
            .figures
            .map_or_else(|| "?".to_owned(), |figures| bytes(figures.live)),
    };
    let mut views: Vec<&View> = views.iter().collect();
    views.sort_by_key(|view| std::cmp::Reverse(view.kernel.process_rss));
    Page {
        rows: views.into_iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_are_no_html() {
        let row = Row {
            pid: 7,
            program: "<script>alert(1)</script>".into(),
            state: "fresh",
            process: bytes(),
            arenas: bytes(),
            live: bytes(),
        };
        let page = Page { rows: vec![row] }.render().unwrap();
        assert!(
            !page.contains("<script>") && page.contains("alert(1)"),
            "{page}"
        );
        assert!(page.contains("/debug/pprof/heap?pid=7"), "{page}");
    }

    fn bytes() -> String {
        Bytes(4096).to_string()
    }

    #[test]
    fn a_page_of_nobody_says_what_to_do() {
        let page = page(&[]).render().unwrap();
        assert!(page.contains("neap run"), "{page}");
    }
}
