"""Mutation testing of the packages that decide: `make mutants`.

Each mutant is one small change of one module: a comparison, a constant, a condition, a call that is left out. The tests
of the module's package must fail with it. A mutant that survives shows a rule that no fast test holds, or a line that
changes nothing.

Why not an existing tool, as of November 2026:

- mutmut 3 copies the sources, replaces functions by trampolines, and skips every decorated function. Turns of actors
  (``@asked``, ``@told``) and properties are decorated, and tables of transitions are outside functions. It selects
  tests by names of functions, not by package, and has no seeded sample.
- cosmic-ray rewrites the files of the work tree, which disturbs whatever else runs there. It has one test command for
  all packages and no seeded sample, and starts an interpreter for each mutant.

Here nothing is written to the sources: each mutant runs in a forked process whose import system compiles the changed
module. A mutant costs the time of its tests.
"""
