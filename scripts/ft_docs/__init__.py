"""The tools of the documentation: they make pages from the code, and read the commands and links of all pages.

`scripts/docs` writes docs/reference and builds the site; tests/docs checks that every page is true.
"""
