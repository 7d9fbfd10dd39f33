//! What `docs/cli.md` shows is what happens.

#[test]
fn the_page_shows_true_transcripts() {
    trycmd::TestCases::new().case("../docs/cli.md");
}
