"""Imports between the package's modules."""

from __future__ import annotations

import graphlib

import grimp


def test_no_modules_import_one_another_in_a_circle() -> None:
    graph = grimp.build_graph("directsuite", exclude_type_checking_imports=False)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    packages = {module for module in imports if graph.find_children(module)}
    within = {module: found - packages for module, found in imports.items() if module not in packages}
    assert list(graphlib.TopologicalSorter(within).static_order())
