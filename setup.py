"""Builds the compiled core; pyproject.toml has the rest.

Without a C compiler, a build on Linux asks for the one in the package `ziglang`.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Sums of whole numbers wrap, and floats are added one by one.
FLAGS = ["-std=c11", "-O3", "-g0", "-ffp-contract=off", "-fwrapv"]
LACKS_COMPILER = os.name == "posix" and not any(
    shutil.which(name.split()[0]) for name in (os.environ.get("CC", "cc"), "gcc")
)
if LACKS_COMPILER:
    os.environ["CC"] = f"{sys.executable} -m ziglang cc"
    os.environ["LDSHARED"] = f"{os.environ['CC']} -shared"


class Build(build_ext):
    """Builds for the checkout, too, and leaves nothing elsewhere."""

    def build_extensions(self) -> None:
        with tempfile.TemporaryDirectory() as cache:  # of ziglang, 60 MB
            os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", cache)
            super().build_extensions()
        self.copy_extensions_to_source()  # where `python` in a checkout looks first


setup(
    setup_requires=["ziglang"] if LACKS_COMPILER else [],
    ext_modules=[
        Extension(
            "hetopt._kernels._core",
            sorted(map(str, Path("hetopt", "_kernels").glob("*.c"))),
            depends=sorted(map(str, Path("hetopt", "_kernels").glob("*.h"))),
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            extra_compile_args=FLAGS if os.name == "posix" else [],
            py_limited_api=True,
        )
    ],
    cmdclass={"build_ext": Build},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},  # and all later ones
)
