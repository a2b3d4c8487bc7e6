import socket

from test.kit.ports import LOOPBACK, free_port


def test_ports_differ_and_can_be_listened_on() -> None:
    ports = {free_port() for _ in range(50)}

    assert len(ports) == 50
    for port in ports:
        with socket.create_server((LOOPBACK, port)):
            pass


def test_ports_are_not_taken_by_outgoing_connections() -> None:
    server = socket.create_server((LOOPBACK, free_port()))
    with server, socket.create_connection(server.getsockname()) as client:
        outgoing = client.getsockname()[1]

    assert all(free_port() < outgoing for _ in range(20))
