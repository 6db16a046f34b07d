"""The text of HTML messages: everything that a mail program would show, also for malformed HTML."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from directsuite.cli.html_text import html_to_text

MARKUP = (
    *re.findall(
        r"\S+",
        """
        <html> </html> <head> </head> <body> </body> <p> </p> </div> <b> </i> <br/> <hr> <o:p> </o:p> <table> <tr> <td>
        </table> </a> <ul> <li> <pre> </pre> <template> </template> <title>a</title> </title> <noscript> </noscript>
        <textarea> </textarea> <select> <option> </select> <svg> </svg> <math> <mi> </math> <button> <iframe> </iframe>
        <frameset> </frameset> <object> <xmp> </xmp> <![endif]> <![endif]--> <!--> ]]> </> < > & &amp
        &#x110000; &#0; <style>a</style> <script>a</script>
        """,
    ),
    *("<div class='a'>", "<a href='b'>", "<![if !mso]>", "<!--[if mso]>a<![endif]-->", "<!-- a -->", "<!-- a --!>"),
    *("<![x b>", "<![foo[ bar>", "<!DOCTYPE html>", "<!ELEMENT a>", "<?xml a?>", "</ a>", "\x00", "\x0b", "\x1f", " "),
    *("\n"),
)
ENDLESS = st.sampled_from(
    ("<!--", "<![", "<!", "<?", "</", "<a b='", "<script>", "<style>", "<plaintext>", "<![CDATA[")
)


@given(st.text() | st.lists(st.sampled_from(MARKUP) | ENDLESS | st.text(max_size=3)).map("".join))
@example("<![foo[ bar")
@example("<![x b>")
@example("\ud800")
def test_any_html_has_a_text(html: str) -> None:
    assert isinstance(html_to_text(html), str)


@given(st.lists(st.sampled_from(MARKUP), max_size=12))
def test_no_word_is_lost_whatever_stands_around_it(markup: list[str]) -> None:
    words = [f"w{number}w" for number in range(len(markup) + 1)]
    html = words[0] + "".join(f"{piece} {word} " for piece, word in zip(markup, words[1:], strict=True))
    shown = html_to_text(html)
    assert [word for word in words if word not in shown] == []


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("plain", "plain"),
        ("<!DOCTYPE html><p>a</p><p>b</p>", "a\n\nb"),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("<title>t</title><style>s</style>x<script>y</script>", "x"),
        ("<table><tr><td>1<td>2</tr><tr><td>3</table>", "1 2\n\n3"),
        ("1 &lt; 2 &amp;&nbsp;3", "1 < 2 & 3"),
        ('<a href="https://a.test/">here</a> and <a>there</a>', "here <https://a.test/> and there"),
        ("</style></script>x", "x"),
        ("<dl><dt>K<dd>6<dd>9</dl>", "K\n6\n9"),
        ("5.2 x 10<sup>9</sup>/L, H<sub>2</sub>O", "5.2 x 10^9/L, H2O"),
        ("<pre>K   6.9\n Na\t140\n</pre>", "K   6.9\n Na     140"),
        ("a<b> b</b>  c", "a b c"),
        ("<select><option>a<option>b</select>c", "a b c"),
        ("<svg><style/>a</svg><svg><style>b</style></svg>", "a"),
        ("<svg><style/></svg>a", "a"),
        ("<a href=b>c <p>d <a>e</a>", "c\nd <b>e"),
        ("<a href=b>c", "c <b>"),
        ("</a></s></pre></mfrac>a", "a"),
        ("<noscript><p>a</p></noscript>b", "a\nb"),
        ("<del>10 mg</del> 5 mg", "[DEL: 10 mg :DEL] 5 mg"),
        ("<s>10 mg</s>, <strike>7 mg", "[DEL: 10 mg :DEL], [DEL: 7 mg :DEL]"),
        ("take <math><mfrac><mn>1</mn><mn>2</mn></mfrac></math> of it", "take 1 2 of it"),
        ("<input value='Aspirin 5 mg'>daily", "Aspirin 5 mg daily"),
        ("<input type=checkbox checked>yes<input type=RADIO>no", "[x] yes [ ] no"),
        ("<input type=hidden value=a><input type=password value=b>c", "c"),
        ("<html><head><title>Labs</title><body><p>Potassium 6.9 critical</p></body></html>", "Potassium 6.9 critical"),
        ("<head><style>p{}</style><p>Potassium 6.9", "Potassium 6.9"),
        ("<html><head><title>Labs<body><p>Potassium 6.9 critical</p></body></html>", "Labs\nPotassium 6.9 critical"),
        ("<TITLE lang=en>Potassium 6.9 critical", "Potassium 6.9 critical"),
        ("<template><p>Potassium 6.9 critical", "Potassium 6.9 critical"),
        ("<![endif]-->a<!--[if mso]>b<![endif]-->", "a"),
        ("<!--[if !mso]><!-->a<!--<![endif]-->", "a"),
        ("<!-- a --!>120/80<!-- -->", "120/80"),
        ("a --> b <textarea>c --> d</textarea><img alt='e --> f'>", "a --> b\nc --> d\ne --> f"),
        ("<script>a --> b; '<script>'</script>c<script><!-- d</script>e", "ce"),
        ("<img src='cid:a' alt='120/80'>ok", "120/80 ok"),
    ],
)
def test_html_is_read_as_a_mail_program_shows_it(html: str, text: str) -> None:
    assert html_to_text(html) == text


@pytest.mark.exhaustive(limit=8)
@pytest.mark.parametrize(
    "piece",
    [
        *("<font a={0}><p>", "<b c={0}><p>", "<li><b style=x{0}>x</li>", "<a href=b{0}><div>", "<s><p>", "<ul><li>x"),
        *("<table><tr><td>x", "<table><a>", "<div>", "<b><p>", "<svg>", "<math><mfrac><mi>", "<sup><pre>", "<select>"),
        *(
            "<!--",
            "<!-- -->",
            "<![CDATA[",
            "<title>",
            "<title",
            "<noscript>",
            "<",
            "</a b='",
            "<style>x</style>",
            "</p>",
        ),
    ],
)
def test_sender_can_not_have_it_take_long(piece: str) -> None:
    """Twice as much HTML takes twice as long, with every construct that can be nested or left open."""
    once, twice = (calls_in("".join(piece.format(number) for number in range(count))) for count in (300, 600))
    assert twice < 2.2 * once + 100


def calls_in(html: str) -> int:
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        html_to_text(html)
    finally:
        sys.setprofile(before)
    return calls
