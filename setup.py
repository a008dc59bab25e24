"""Builds the compiled core; pyproject.toml has the rest.

Without a C compiler, a build on Linux asks for the one in the package `ziglang`.
"""

import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FOLDER = Path("hetopt", "_kernels")
ABI = "cp311"  # the oldest Python of pyproject.toml, and all later ones
LACKS_COMPILER = os.name == "posix" and not any(
    shutil.which(name.split()[0]) for name in (os.environ.get("CC", "cc"), "gcc")
)
if LACKS_COMPILER:
    os.environ["CC"] = f"{sys.executable} -m ziglang cc"
    os.environ["LDSHARED"] = f"{os.environ['CC']} -shared"


class Build(build_ext):
    """Builds with what the compiler at hand understands."""

    def build_extensions(self) -> None:
        if self.compiler.compiler_type == "unix":
            for extension in self.extensions:
                # Sums of whole numbers wrap, and floats are added one by one.
                flags = ["-std=c11", "-O3", "-ffp-contract=off", "-fwrapv"]
                extension.extra_compile_args = flags
        super().build_extensions()


setup(
    setup_requires=["ziglang"] if LACKS_COMPILER else [],
    ext_modules=[
        Extension(
            "hetopt._kernels._core",
            [str(path) for path in sorted(FOLDER.glob("*.c"))],
            depends=[str(path) for path in sorted(FOLDER.glob("*.h"))],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
        )
    ],
    cmdclass={"build_ext": Build},
    options={"bdist_wheel": {"py_limited_api": ABI}},
)
