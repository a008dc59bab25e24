"""Builds the compiled core where there is a C compiler; pyproject.toml has the rest.

The extension is optional: without a compiler, or where it fails, hetopt installs all
the same, and the wheel is then one for every platform.
"""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

FOLDER = Path("hetopt", "_kernels")
ABI = "cp311"  # the oldest Python of pyproject.toml, and all later ones


class Build(build_ext):
    """Builds with what the compiler at hand understands."""

    def build_extensions(self) -> None:
        if self.compiler.compiler_type == "unix":
            for extension in self.extensions:
                # The twin in Python adds floats one by one, and so must C; sums of
                # whole numbers wrap as numpy's do.
                flags = ["-std=c11", "-O3", "-ffp-contract=off", "-fwrapv"]
                extension.extra_compile_args = flags
        super().build_extensions()

    @property
    def missing(self) -> bool:
        """Whether an extension was not built."""
        paths = map(self.get_ext_fullpath, map(self.get_ext_fullname, self._names()))
        return not all(Path(path).is_file() for path in paths)

    def _names(self) -> list[str]:
        return [extension.name for extension in self.extensions]


class Wheel(bdist_wheel):
    """Makes a wheel of one platform where something was compiled, or of all."""

    def run(self) -> None:
        self.run_command("build_ext")
        if self.get_finalized_command("build_ext").missing:
            self.root_is_pure, self.py_limited_api = True, False
            self.distribution.ext_modules = []  # all lies at the root, then
        super().run()


setup(
    ext_modules=[
        Extension(
            "hetopt._kernels._core",
            [str(path) for path in sorted(FOLDER.glob("*.c"))],
            depends=[str(path) for path in sorted(FOLDER.glob("*.h"))],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            optional=True,
        )
    ],
    cmdclass={"build_ext": Build, "bdist_wheel": Wheel},
    options={"bdist_wheel": {"py_limited_api": ABI}},
)
