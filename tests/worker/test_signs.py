"""The signs of a command: refused where they can't be given, and taken down at the end."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

from django_jobs.clock import FrozenClock
from django_jobs.worker.signs import HeartbeatFile, Signs
from tests.factories import seconds


class TestHeartbeatFile:
    def test_it_is_there_from_the_start_and_gone_at_the_end(self, tmp_path: Path) -> None:
        path = tmp_path / "heartbeat"
        signs = Signs.opened(file=str(path))
        assert path.exists()
        signs.take_down()
        assert not path.exists()

    def test_touching_it_changes_its_time_once_a_second(self, tmp_path: Path, frozen: FrozenClock) -> None:
        path = tmp_path / "heartbeat"
        file = HeartbeatFile(str(path))
        touched = []
        for _ in range(11):
            os.utime(path, (0, 0))
            file.touch()
            touched.append(path.stat().st_mtime > 0)
            frozen.advance(seconds(0.25))
        assert touched == [True, False, False, False] * 2 + [True, False, False]

    def test_it_is_made_again_where_somebody_deleted_it(self, tmp_path: Path) -> None:
        path = tmp_path / "heartbeat"
        file = HeartbeatFile(str(path))
        path.unlink()
        file.touch()
        assert path.exists()

    def test_what_stood_in_it_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "heartbeat"
        path.write_text("mine")
        HeartbeatFile(str(path)).touch()
        assert path.read_text() == "mine"

    def test_one_that_cannot_be_written_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "nowhere" / "heartbeat"
        message = f"--heartbeat-file {path}: can't be written: No such file or directory"
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            Signs.opened(file=str(path))

    @pytest.mark.parametrize("path", ["/dev/null", "/tmp"])
    def test_what_is_no_ordinary_file_is_refused(self, path: str) -> None:
        with pytest.raises(ValueError, match=f"^--heartbeat-file {path}: is no ordinary file"):
            Signs.opened(file=path)
        assert Path(path).exists()

    def test_one_that_cannot_be_written_any_more_is_told_of_once(
        self, tmp_path: Path, frozen: FrozenClock, odd: list[str]
    ) -> None:
        folder = tmp_path / "folder"
        folder.mkdir()
        file = HeartbeatFile(str(folder / "heartbeat"))
        (folder / "heartbeat").unlink()
        folder.rmdir()
        for _ in range(5):
            file.touch()
            frozen.advance(seconds(1))
        assert odd == [f"the heartbeat file {folder}/heartbeat can't be written any more: No such file or directory"]
        folder.mkdir()
        file.touch()
        assert (folder / "heartbeat").exists()


class TestProbe:
    def test_it_says_where_it_can_be_asked(self, odd: list[str]) -> None:
        signs = Signs.opened(port="0")
        signs.show(lambda _: None)
        signs.take_down()
        assert len(odd) == 1
        assert re.fullmatch(r"probes on http://127\.0\.0\.1:\d+: /live /ready /started", odd[0])

    @pytest.mark.parametrize("port", ["-1", "65536", "http", "", "80.5"])
    def test_what_is_no_port_is_refused(self, port: str) -> None:
        with pytest.raises(ValueError, match=f"^--probe-port {re.escape(port)}: give a port from 1 to 65535"):
            Signs.opened(port=port)

    def test_a_port_that_is_taken_is_refused(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            message = f"--probe-port {port}: 127.0.0.1 can't be listened on there: Address already in use"
            with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
                Signs.opened(port=port)

    def test_a_host_that_is_not_ours_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"^--probe-port 0: 192\.0\.2\.1 can't be listened on there"):
            Signs.opened(port="0", host="192.0.2.1")

    def test_a_host_that_nobody_knows_is_refused(self) -> None:
        with pytest.raises(
            ValueError, match=r"^--probe-port 0: no\.such\.host\.invalid can't be listened on there: \w"
        ):
            Signs.opened(port="0", host="no.such.host.invalid")

    def test_where_the_file_is_refused_the_port_is_given_back(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with pytest.raises(ValueError, match="heartbeat-file"):
            Signs.opened(file=str(tmp_path / "nowhere" / "x"), port=port)
        Signs.opened(port=port).take_down()


def test_nothing_that_was_not_asked_for_is_shown(odd: list[str]) -> None:
    signs = Signs.opened()
    assert (signs.file, signs.probe) == (None, None)
    signs.show(lambda _: None)
    signs.take_down()
    assert odd == []
