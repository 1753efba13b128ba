package dev.loupe.export;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.generate.Generation;
import dev.loupe.weights.FaultyFiles;
import dev.loupe.weights.io.AtomicFile;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Every step of writing a file of maps fails in turn: the older file stays, and nothing else. */
class ExportFaultsTest {
  @TempDir Path temporary;

  @ParameterizedTest
  @EnumSource(AttentionFormat.class)
  void faultsInTurn(AttentionFormat format) throws IOException {
    Generation run = Runs.random(new int[] {1, 3}, new int[] {0, 2}, 4, true, Runs.labels(9));
    String name = "a" + format.ending();
    int faults =
        FaultyFiles.inTurn(
            n -> {
              Path fresh = Files.createDirectory(temporary.resolve("f" + n));
              Files.writeString(fresh.resolve(name), "old");
              return fresh;
            },
            fresh -> {
              try (AtomicFile file = AtomicFile.create(fresh.resolve(name))) {
                format.write(run, file.path());
                file.commit();
              }
            },
            (fresh, failure) -> {
              assertEquals("old", Files.readString(fresh.resolve(name)));
              try (Stream<Path> files = Files.list(fresh)) {
                assertEquals(List.of(fresh.resolve(name)), files.toList());
              }
            });
    assertTrue(faults > 3, faults + " faults");
  }
}
