//! The words of `--format`, verb by verb. Clap accepts no other.

choice! {
    /// What most verbs print.
    pub enum TextOrJson {
        /// For people.
        Text = "text",
        /// One object.
        Json = "json",
    }
}

choice! {
    /// What `neap stat` prints.
    pub enum StatFormat {
        /// Tables.
        Text = "text",
        /// One object.
        Json = "json",
        /// Metrics.
        Prometheus = "prometheus",
    }
}

choice! {
    /// How `neap top` shows the processes.
    pub enum TopFormat {
        /// With keys.
        Screen = "screen",
        /// Lines.
        Text = "text",
        /// One object per line.
        Json = "json",
    }
}

choice! {
    /// What `neap profile` makes.
    pub enum ProfileFormat {
        /// A call tree and the largest functions.
        Tree = "tree",
        /// What is still live, by place.
        Leaks = "leaks",
        /// One line per stack.
        Collapsed = "collapsed",
        /// An SVG.
        Flamegraph = "flamegraph",
        /// A file of pprof's format.
        Pprof = "pprof",
        /// One object.
        Json = "json",
    }
}

choice! {
    /// What `neap report` makes.
    pub enum ReportFormat {
        /// The page.
        Html = "html",
        /// The verdict as one object.
        Json = "json",
    }
}

choice! {
    /// What `neap env` prints.
    pub enum EnvFormat {
        /// An ENV line.
        Dockerfile = "dockerfile",
        /// Export lines.
        Shell = "shell",
    }
}
