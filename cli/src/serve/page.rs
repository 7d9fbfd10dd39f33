//! The page that lists the processes.

use super::http::{Response, Status};
use crate::filters;
use crate::view::View;
use askama::Template;

#[derive(Template)]
#[template(path = "serve.html")]
struct Page<'a> {
    views: Vec<&'a View>,
}

/// The response: the processes, largest first.
pub fn root(views: &[View]) -> Response {
    let mut views: Vec<_> = views.iter().collect();
    views.sort_by_key(|view| std::cmp::Reverse(view.kernel.process_rss));
    match (Page { views }).render() {
        Ok(text) => Response::new("text/html; charset=utf-8", text),
        Err(error) => Response::refusal(Status::INTERNAL, &error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::view_at_rest;

    #[test]
    fn names_of_processes_are_no_html() {
        let view = View {
            program: "<script>alert(1)</script>".into(),
            ..view_at_rest()
        };
        let page = Page { views: vec![&view] }.render().unwrap();
        assert!(
            !page.contains("<script>") && page.contains("alert(1)"),
            "{page}"
        );
        assert!(page.contains("/debug/pprof/heap?pid=7"), "{page}");
    }

    #[test]
    fn a_page_of_nobody_says_what_to_do() {
        let page = Page { views: vec![] }.render().unwrap();
        assert!(page.contains("neap run"), "{page}");
    }
}
