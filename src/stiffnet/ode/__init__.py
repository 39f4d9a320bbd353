"""The classical side: stiff differential equations, their indices and solvers; knows no network."""

from stiffnet.ode.problems import PROBLEMS as PROBLEMS
