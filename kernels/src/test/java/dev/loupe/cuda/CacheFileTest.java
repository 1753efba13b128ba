package dev.loupe.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.channels.FileLock;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(value = 20, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class CacheFileTest {
  private static final List<String> LINES = List.of("right\tattention\tv1", "", "ein Stück");

  @TempDir Path folder;
  private final Card card = new Card("a card", "", 75, 12000, "525", "images", "");

  private CacheFile file() {
    return CacheFile.in(folder, card, "verdicts", List.of());
  }

  private Path path() {
    return folder.resolve(card.key() + ".verdicts");
  }

  private void refused(String why) {
    CacheFile.DamagedException e =
        assertThrows(CacheFile.DamagedException.class, () -> file().read());
    assertTrue(String.valueOf(e.getMessage()).startsWith(path().toString()), e::getMessage);
    assertTrue(String.valueOf(e.getMessage()).contains(why), e::getMessage);
    assertEquals(Optional.empty(), file().lines());
  }

  @Test
  void givesWhatWasWrittenAndNothingElse() throws Exception {
    assertEquals(Optional.empty(), file().read());
    file().write(LINES);
    assertEquals(Optional.of(LINES), file().read());
    Files.writeString(path(), Files.readString(path()).replace("v1", "v2"));
    refused("is damaged or was changed");
    Files.write(path(), new byte[0]);
    refused("is damaged or was changed");
    Files.write(path(), new byte[] {(byte) 0xE9, '\n'});
    refused("can't be read");
  }

  @Test
  void aFileThatSomebodyMadeEndlessIsNotRead() throws Exception {
    Files.write(path(), new byte[(1 << 20) + 1]);
    refused("more bytes than were written");
    Files.delete(path());
    Files.createSymbolicLink(path(), Path.of("/dev/zero"));
    refused("no regular file");
    file().write(LINES); // takes its place
    assertEquals(Optional.of(LINES), file().read());
  }

  @Test
  void aPipeIsNotWaitedFor() throws Exception {
    assumeTrue(Files.exists(Path.of("/usr/bin/mkfifo")), "no mkfifo here");
    Path lock = Path.of(path() + ".lock");
    for (Path pipe : List.of(path(), lock)) {
      assertEquals(0, new ProcessBuilder("/usr/bin/mkfifo", pipe.toString()).start().waitFor());
    }
    refused("no regular file");
    assertThrows(IOException.class, () -> file().lock().close());
    Files.delete(lock);
    for (int again = 0; again < 2; again++) {
      try (FileLock held = file().lock()) {
        assertTrue(held.isValid());
      }
    }
    file().write(LINES);
    assertEquals(Optional.of(LINES), file().read());
  }
}
