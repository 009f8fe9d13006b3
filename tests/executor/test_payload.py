import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readie.protocol.payload import Buffer, Pickled, decode, encode, total_size

pickled = st.builds(Pickled, st.binary(max_size=100), st.lists(st.binary(max_size=100), max_size=4))
containers = st.lists(pickled, max_size=4)


def content(pickles: list[Pickled]) -> list[tuple[bytes, list[bytes]]]:
    return [(bytes(item.data), [bytes(buffer) for buffer in item.buffers]) for item in pickles]


@given(containers, st.sampled_from([bytes, bytearray, memoryview]))
def test_what_was_encoded_is_decoded(pickles: list[Pickled], kind: type[Buffer]) -> None:
    joined = b"".join(encode(pickles))

    assert content(decode(kind(joined))) == content(pickles)
    assert len(joined) == total_size(encode(pickles))


@given(containers)
def test_every_item_begins_at_a_multiple_of_sixteen(pickles: list[Pickled]) -> None:
    container = bytearray().join(encode(pickles))
    start = memoryview(container)

    for item in decode(container):
        for piece in (item.data, *item.buffers):
            assert isinstance(piece, memoryview)
            if piece.nbytes:
                assert (_address(piece) - _address(start)) % 16 == 0


@given(containers, st.data())
def test_a_container_that_is_cut_is_refused(pickles: list[Pickled], data: st.DataObject) -> None:
    joined = b"".join(encode(pickles))
    length = data.draw(st.integers(0, len(joined) - 1))

    with pytest.raises(ValueError, match="payload container"):
        decode(joined[:length])


@given(containers, st.binary(min_size=1, max_size=40))
def test_a_container_with_something_behind_it_is_refused(pickles: list[Pickled], rest: bytes) -> None:
    with pytest.raises(ValueError, match="payload container"):
        decode(b"".join(encode(pickles)) + rest)


@given(containers, st.data())
def test_a_changed_byte_is_refused_or_changes_the_content(pickles: list[Pickled], data: st.DataObject) -> None:
    joined = bytearray().join(encode(pickles))
    position = data.draw(st.integers(0, len(joined) - 1))
    joined[position] ^= data.draw(st.integers(1, 255))

    try:
        decoded = content(decode(joined))
    except ValueError:
        return
    assert decoded != content(pickles)


@given(st.binary(max_size=200))
def test_garbage_is_refused_with_a_value_error(garbage: bytes) -> None:
    with pytest.raises(ValueError, match="payload container"):
        decode(garbage)


def test_a_count_that_cannot_be_true_takes_no_memory() -> None:
    header = b"RDPK" + b"\x01" + bytes(3) + b"\xff\xff\xff\xff" + b"\xff\xff\xff\xff"

    with pytest.raises(ValueError, match="too short for 4294967295 pickles"):
        decode(header)


def test_the_layout_is_fixed() -> None:
    container = b"".join(encode([Pickled(b"abc", [b"x" * 16, b"yz"])]))

    assert (
        container
        == (
            b"RDPK\x01\0\0\0" + b"\x01\0\0\0\x02\0\0\0"  # magic, version; one pickle, two buffers
            b"\x03\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0"  # a pickle of three bytes with two buffers
            b"\x10\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0"  # buffers of sixteen and two bytes
            b"abc" + bytes(13) + b"x" * 16 + b"yz" + bytes(14)
        )
    )


def test_buffers_are_neither_copied_in_nor_out() -> None:
    buffer = bytearray(b"0" * 1000)
    pieces = encode([Pickled(b"data", [buffer])])
    container = bytearray().join(pieces)
    (decoded,) = decode(container)

    buffer[0] = ord("1")
    container[-1000 - 8] = ord("2")  # 1000 bytes are padded with 8

    assert bytes(pieces[3])[:1] == b"1"
    assert bytes(decoded.buffers[0])[:1] == b"2"


def test_out_of_band_buffers_of_pickle_survive() -> None:
    value = [bytearray(b"a" * 10_000), bytearray(b"b" * 3)]
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps([pickle.PickleBuffer(item) for item in value], protocol=5, buffer_callback=buffers.append)
    (decoded,) = decode(b"".join(encode([Pickled(data, [buffer.raw() for buffer in buffers])])))

    assert [bytes(item) for item in pickle.loads(decoded.data, buffers=decoded.buffers)] == value


def test_a_buffer_that_is_not_contiguous_is_refused() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        encode([Pickled(b"", [memoryview(b"abcdef")[::2]])])


def _address(view: memoryview) -> int:
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(view))
