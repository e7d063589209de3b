# How Sphinx builds these pages: https://www.sphinx-doc.org/en/master/usage/configuration.html
project = "ft-supervisor"
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4  # the anchors that GitHub gives headings, so that a link works in both
smartquotes = False  # words between quotes are there to be looked for, and two dashes are two
html_theme = "alabaster"
html_theme_options = {
    "description": "Keeps a distributed PyTorch job going on Slurm when its nodes die.",
    "page_width": "1240px",
    "code_font_size": "0.8em",  # 100 columns and more without scrolling
    "sidebar_width": "250px",
    "body_max_width": "none",
    "fixed_sidebar": True,
    "show_powered_by": False,
}
html_static_path = ["pictures"]
html_copy_source = False
html_show_copyright = False
templates_path: list[str] = []
