"""The C++ compiler that PyTorch's own compiler needs."""

from cruciform.errors import DeployError, first_line


def require_compiler() -> None:
    """Raise where no C++ compiler is installed.

    Raises:
        DeployError: There is none.
    """
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise DeployError(
            f"PyTorch needs a C++ compiler, and none was found ({first_line(error)}): install one (Debian: apt "
            "install g++; conda: conda install gxx), or set its path: export CXX=/path/to/g++"
        ) from error
