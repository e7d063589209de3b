"""The documentation's machinery: pages that are made from the code, and the commands and links of all pages.

`scripts/docs` writes docs/reference and builds the site; tests/docs checks that every page is true.
"""
