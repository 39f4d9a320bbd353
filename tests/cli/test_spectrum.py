"""`stiffnet spectrum` as a user meets it: a table, a file and a page, and it goes on."""

import os
import sys

from jobs.test_spectrum import write_model
from stiffnet.cli.main import main
from stiffnet.results.spectra import SpectrumReport

COMMAND = [
    "spectrum", "model", "--data", "digits", "--images", "1", "--step", "layer3.1", "--out", "out",
]  # fmt: skip


def test_a_table_a_file_and_a_page_and_a_second_time_only_with_resume(
    tmp_path, capsys, monkeypatch
):
    write_model(tmp_path / "model")
    monkeypatch.setattr(sys, "argv", ["stiffnet", *COMMAND])
    assert main(COMMAND) == 0
    said = capsys.readouterr()
    assert "layer3.1" in said.out
    assert said.out.endswith("Written: out/spectrum.json and out/spectrum.html\n")
    assert said.err == ""
    assert sorted(os.listdir("out")) == ["parts", "spectrum.html", "spectrum.json"]
    report = SpectrumReport.load("out/spectrum.json")
    assert report.facts["command"] == "stiffnet " + " ".join(COMMAND)
    assert main(COMMAND) == 6
    said = capsys.readouterr()
    assert "holds 1 spectra of earlier work. Go on with them with `--resume`" in said.err
    assert len(said.err.splitlines()) == 1
    assert main([*COMMAND, "--resume", "--method", "auto"]) == 0
    assert main([*COMMAND, "--resume", "--method", "dense"]) == 6
    assert "belongs to other work" in capsys.readouterr().err
