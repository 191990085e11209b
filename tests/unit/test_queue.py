import threading

from vision_worker.errors import BrokerUnavailable
from vision_worker.queue import Doorbell


def test_a_ring_returns_while_the_broker_hangs() -> None:
    hanging, release = threading.Event(), threading.Event()

    def send() -> None:
        hanging.set()
        assert release.wait(10)

    bell = Doorbell(send)
    bell.ring()
    assert hanging.wait(10)
    bell.ring()  # would block for ever if it waited for the broker
    assert not bell.flush(0)
    release.set()
    assert bell.flush(10)
    bell.close()


def test_a_thousand_rings_during_one_send_are_one_more_send() -> None:
    sent: list[int] = []
    sending, release = threading.Event(), threading.Event()

    def send() -> None:
        sent.append(1)
        sending.set()
        assert release.wait(10)

    bell = Doorbell(send)
    bell.ring()
    assert sending.wait(10)
    for _ in range(1000):
        bell.ring()
    release.set()
    assert bell.flush(10)
    assert len(sent) == 2
    bell.close()


def test_a_bell_that_found_no_broker_is_rung_again() -> None:
    outcomes = [BrokerUnavailable(reason="connection refused"), None]
    seen: list[object] = []

    def send() -> None:
        outcome = outcomes.pop(0)
        seen.append(outcome)
        if outcome is not None:
            raise outcome

    bell = Doorbell(send)
    bell.ring()
    assert bell.flush(10)
    assert [type(outcome) for outcome in seen] == [BrokerUnavailable, type(None)]
    bell.close()


def test_an_unexpected_error_does_not_silence_the_bell() -> None:
    outcomes: list[Exception | None] = [ValueError("surprise"), None]

    def send() -> None:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    bell = Doorbell(send)
    bell.ring()
    assert bell.flush(10)
    assert outcomes == []
    bell.close()


def test_closing_ends_the_thread() -> None:
    bell = Doorbell(lambda: None)
    bell.ring()
    assert bell.flush(10)
    bell.close()
    thread = next((t for t in threading.enumerate() if t.name == "doorbell"), None)
    if thread is not None:
        thread.join(10)
        assert not thread.is_alive()
