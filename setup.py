"""`pip install .` builds in the checkout: what it builds lies elsewhere, and nothing is left."""

import tempfile

from setuptools import setup

with tempfile.TemporaryDirectory() as folder:
    setup(options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}})
