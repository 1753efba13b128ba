package dev.loupe.text.files;

import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class SafePatternTest {
  @ParameterizedTest
  @ValueSource(
      strings = {
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
            + " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "[^\\r\\n\\p{L}]?[\\p{Lu}\\p{M}]*[\\p{Ll}\\p{M}]+(?i:'s|'t)?|\\p{N}{1,3}",
        " {2,}",
        "[]a]+",
        "\\d",
        "(?<=x)a+",
        "a++b",
      })
  void taken(String pattern) {
    SafePattern.check(pattern);
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "(a+)+$",
        "(a|a)*b+(a*)*",
        "(?:a*)*",
        "a*a*b",
        "x+x+y",
        "(a*)\\1",
        "\\s+\\s*$",
        "(a",
        "[a",
        "a{1,x}",
        "(a{2,})+",
        "(?=a*a*b)a",
        "*a",
      })
  void refused(String pattern) {
    assertThrows(IllegalArgumentException.class, () -> SafePattern.check(pattern));
  }
}
