package dev.loupe.text;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class CountTest {
  @Test
  void oneIsNoPlural() {
    assertEquals("0 tokens", Count.of(0, "token"));
    assertEquals("1 token", Count.of(1, "token"));
    assertEquals("12345 tokens", Count.of(12345, "token"));
    assertEquals("1 window", Count.grouped(1, "window"));
    assertEquals("12,345 windows", Count.grouped(12345, "window"));
  }
}
