"""Begins the null GPU's arithmetic (arithmetic.py) in each process, once it has imported torch."""

import importlib.abc
import importlib.util
import os
import sys


class _AfterTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        execute = spec.loader.exec_module

        def and_begin(module):
            execute(module)
            from chaos.null_gpu.arithmetic import begin

            begin()

        spec.loader.exec_module = and_begin
        return spec


if os.environ.get("NULL_GPU_ARITHMETIC"):
    sys.meta_path.insert(0, _AfterTorch())
