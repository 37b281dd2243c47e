"""Settings of the site that scripts/docs.sh builds out of the repository's Markdown pages."""

project = "muse_plugin"
copyright = "the muse_plugin authors"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = project
root_doc = "docs/index"
# The root of the repository is the source folder, so that links between pages are the same here and on the site.
include_patterns = ["*.md", "docs/*.md", "examples/**/*.md", "tests/**/README.md"]
exclude_patterns = ["**/.venv", "**/.*", "runs", "build", "dist", "examples/quickstart/data"]
myst_heading_anchors = 4
