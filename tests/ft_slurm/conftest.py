"""Slurm's answers, and the libraries, which are compiled once for all tests of this folder."""

from tests.ft_slurm import completion_site

bare, libraries = completion_site.bare, completion_site.libraries
short, site = completion_site.short, completion_site.site
