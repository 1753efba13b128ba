package dev.loupe.bench.kernel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class ShapeTest {
  private static final List<Shape> USUAL =
      List.of(
          Shape.of(Operation.ATTENTION, 128, 12, 64), Shape.of(Operation.ATTENTION, 256, 12, 64));

  private static String parsed(Operation operation, String text, List<Shape> others) {
    return String.join(
        "; ", Shape.parse(operation, text, others).stream().map(Shape::toString).toList());
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "T=5,H=2,D=8 | T=5 H=2 D=8",
        "T=100..400,H=1,D=1 | T=100 H=1 D=1; T=200 H=1 D=1; T=400 H=1 D=1",
        "T=100..399,H=1,D=1 | T=100 H=1 D=1; T=200 H=1 D=1",
        "T=3,7,H=1,D=2,4 | T=3 H=1 D=2; T=7 H=1 D=2; T=3 H=1 D=4; T=7 H=1 D=4",
        "' T = 3 , 3 , H=1,D=1' | T=3 H=1 D=1",
        "T=1,2..4,H=1,D=1 | T=1 H=1 D=1; T=2 H=1 D=1; T=4 H=1 D=1",
        "D=32 | T=128 H=12 D=32; T=256 H=12 D=32",
        "T=1048576..1048576,H=1,D=1 | T=1048576 H=1 D=1"
      })
  void whatIsAskedFor(String text, String shapes) {
    assertEquals(shapes, parsed(Operation.ATTENTION, text, USUAL));
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "R=5 | 'R' is no axis of attention: it has T, H, D",
        "128 | '128' is no shape: T=128..1024, for example",
        "'' | '' is no shape: T=128..1024, for example",
        "T= | T=: '' is no whole number",
        "T=x | T=x: 'x' is no whole number",
        "T=1.5 | T=1.5: '1.5' is no whole number",
        "T=9999999999 | T=9999999999: '9999999999' is no whole number",
        "T=4..2 | T=4..2: give the smaller size first",
        "T=0..2 | T=0..2: give the smaller size first",
        "T=0 | T=0: not 1 to 1048576",
        "T=1048577 | T=1048577: not 1 to 1048576",
        "T=1.. | T=: '' is no whole number"
      })
  void whatIsNoShape(String text, String message) {
    IllegalArgumentException e =
        assertThrows(
            IllegalArgumentException.class, () -> Shape.parse(Operation.ATTENTION, text, USUAL));
    assertEquals(message, e.getMessage());
  }

  @Test
  void noMoreThanAnArrayHolds() {
    Shape.of(Operation.GELU, 1 << 15, 1 << 15).requireIndexable(); // 2^30
    IllegalArgumentException e =
        assertThrows(
            IllegalArgumentException.class,
            Shape.of(Operation.GELU, 1 << 15, (1 << 15) + 1)::requireIndexable);
    assertEquals(
        "R=32768 C=32769 has 1073774592 elements in one array: more than 1073741824",
        e.getMessage());
    for (Shape wide :
        List.of(
            Shape.of(Operation.LINEAR, 1, 1 << 15, 1 << 16),
            Shape.of(Operation.LINEAR, 1 << 15, 1 << 16, 1),
            Shape.of(Operation.LINEAR, 1 << 15, 1, 1 << 16),
            Shape.of(Operation.MAP, 1 << 20, 12, 64))) {
      assertThrows(IllegalArgumentException.class, wide::requireIndexable);
    }
  }

  @Test
  void everyAxisHasASize() {
    assertThrows(IllegalArgumentException.class, () -> Shape.of(Operation.GELU, 3));
    assertEquals(64, USUAL.getFirst().size("D"));
  }
}
