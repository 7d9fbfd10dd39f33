//! The transcripts in `docs/cli.md` agree with what the command prints.

#[test]
fn the_page_shows_true_transcripts() {
    trycmd::TestCases::new().case("../docs/cli.md");
}
