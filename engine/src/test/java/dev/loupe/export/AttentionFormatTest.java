package dev.loupe.export;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.generate.Generation;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.TimeZone;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class AttentionFormatTest {
  @TempDir Path folder;

  @Test
  void theEndingNamesTheFormat() {
    assertEquals(AttentionFormat.NPZ, AttentionFormat.of(Path.of("a/run.npz")));
    assertEquals(AttentionFormat.JSON, AttentionFormat.of(Path.of("run.v2.JSON")));
    assertEquals(AttentionFormat.HTML, AttentionFormat.of(Path.of(".html")));
  }

  @Test
  void anotherEndingIsRefusedWithTheKnownOnes() {
    for (String name : new String[] {"run.npy", "run", "png", "run.png.gz", "/"}) {
      String message =
          String.valueOf(
              assertThrows(IllegalArgumentException.class, () -> AttentionFormat.of(Path.of(name)))
                  .getMessage());
      assertTrue(message.contains(name), message);
      assertTrue(message.contains(".npz .json .csv .png .html"), message);
    }
  }

  @ParameterizedTest
  @EnumSource
  void theSameRunGivesTheSameBytesWhateverWasThere(AttentionFormat format) throws IOException {
    Generation run = Runs.random(new int[] {1, 3}, new int[] {0, 2}, 4, true, Runs.labels(9));
    Path first = folder.resolve("first" + format.ending());
    Path second = folder.resolve("second" + format.ending());
    Files.write(second, new byte[1 << 20]);
    format.write(run, first);
    TimeZone here = TimeZone.getDefault();
    try {
      TimeZone.setDefault(TimeZone.getTimeZone("Pacific/Kiritimati"));
      format.write(run, second);
    } finally {
      TimeZone.setDefault(here);
    }
    assertArrayEquals(Files.readAllBytes(first), Files.readAllBytes(second));
  }

  @ParameterizedTest
  @EnumSource
  void aRunWithoutMapsWritesNothing(AttentionFormat format) {
    Generation run = Runs.random(new int[] {0}, new int[] {0}, 1, false, "a");
    Generation none =
        new Generation(
            run.model(),
            run.sampling(),
            0,
            run.text(),
            1,
            run.tokens(),
            run.finish(),
            0,
            Optional.empty(),
            Optional.empty(),
            Optional.empty(),
            Optional.empty(),
            Optional.empty(),
            run.timing());
    Path file = folder.resolve("none" + format.ending());
    assertThrows(IllegalStateException.class, () -> format.write(none, file));
    assertFalse(Files.exists(file));
  }

  @Test
  void mapsThatDoNotBelongToTheTokensAreRefused() {
    AttentionMaps three = AttentionMaps.allocate(new int[] {0}, new int[] {0}, 3);
    Generation run = Runs.run(Runs.tokens(2, "a", "b"), 2, three, Optional.empty());
    String message =
        String.valueOf(
            assertThrows(IllegalArgumentException.class, () -> MappedRun.of(run)).getMessage());
    assertEquals("maps over 3 tokens of a run of 2 tokens", message);
    AttentionMaps otherHead = AttentionMaps.allocate(new int[] {0}, new int[] {1}, 3);
    Generation mixed = Runs.run(Runs.tokens(2, "a", "b", "c"), 2, three, Optional.of(otherHead));
    assertThrows(IllegalArgumentException.class, () -> MappedRun.of(mixed));
  }

  @Test
  void afterSlidingTheMapsAreAboutTheLastTokens() {
    AttentionMaps three = AttentionMaps.allocate(new int[] {0}, new int[] {0}, 3);
    MappedRun run =
        MappedRun.of(Runs.run(Runs.tokens(3, "a", "b", "c", "d", "e"), 3, three, Optional.empty()));
    assertEquals("c", run.tokens().getFirst().label());
    assertEquals(1, run.promptLength());
    assertEquals("3 tokens: 1 prompt, 2 generated", run.lengths());
  }

  @Test
  void numbersAreShortened() {
    assertEquals("layer 4", MappedRun.numbered("layer", new int[] {4}));
    assertEquals("layers 0-5", MappedRun.numbered("layer", new int[] {0, 1, 2, 3, 4, 5}));
    assertEquals("heads 1, 3", MappedRun.numbered("head", new int[] {1, 3}));
  }
}
