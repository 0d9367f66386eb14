"""Registries answer by class and condition; doors put their name before a message once."""

import pytest

from calor.core.doors import door, warn
from calor.core.registry import Registry


class Animal:
    legs = 4


class Bird(Animal):
    legs = 2


def growl():
    """A voice."""


def song():
    """Another."""


def test_the_nearest_class_answers_first():
    voices = Registry("voice")
    voices.register(Animal)(growl)
    voices.register(Bird, loud=True)(song)
    assert voices.find(Bird()).made is song
    assert voices.find(Bird()).facts == {"loud": True}
    assert [entry.made for entry in voices.all(Bird())] == [song, growl]
    assert voices.find(Animal()).made is growl
    assert voices.find(3) is None


def test_conditions_hold_for_single_values():
    voices = Registry("voice")
    voices.register(Animal, when=lambda animal: animal.legs == 2)(song)
    voices.register(Animal)(growl)
    assert voices.find(Animal()).made is growl
    assert [entry.made for entry in voices.all(Bird())] == [song, growl]


def test_a_second_entry_that_would_never_be_asked_is_refused():
    voices = Registry("voice")
    voices.register(Animal, when=lambda animal: animal.legs == 2)(song)
    voices.register(Animal)(growl)
    voices.register(Animal)(growl)  # a file that is run again
    voices.register(Animal, name="loud")(song)
    with pytest.raises(ValueError, match="Animal has its 'voice' already, .*growl"):
        voices.register(Animal)(song)
    with pytest.raises(ValueError, match="Animal has its 'loud' already"):
        voices.register(Animal, name="loud")(growl)


def test_values_are_refused_as_classes_and_functions_are():
    voices = Registry("voice")
    voices.register(Animal)({"low": growl})
    voices.register(Animal)({"low": growl})
    with pytest.raises(ValueError, match="Animal has its 'voice' already, .*growl"):
        voices.register(Animal)({"low": song})


def test_a_decorator_returns_what_it_is_put_on():
    voices = Registry("voice")

    @voices.register(Animal)
    class Song:
        pass

    assert voices.find(Animal()).made is Song


@door("inner")
def inner(value):
    if value < 0:
        raise ValueError("value must not be negative")
    return value


@door("outer")
def outer(value):
    return inner(value)


def test_the_outermost_door_names_itself_once():
    with pytest.raises(ValueError, match="^inner: value must not be negative$"):
        inner(-1)
    with pytest.raises(ValueError, match="^outer: value must not be negative$"):
        outer(-1)
    assert outer(2) == 2
    # A door that was left by an error is a door again.
    with pytest.raises(ValueError, match="^inner: value"):
        inner(-1)


def test_errors_with_arguments_of_their_own_stay_as_they_are():
    @door("read")
    def decode():
        return b"\xff".decode()

    with pytest.raises(UnicodeDecodeError, match="can't decode"):
        decode()


def test_warnings_name_the_outermost_door_and_the_line_that_entered_it():
    @door("outer")
    def outer():
        warn("it is late.", FutureWarning)

    with pytest.warns(FutureWarning, match="^outer: it is late") as caught:
        outer()
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="^alone$"):
        warn("alone")
