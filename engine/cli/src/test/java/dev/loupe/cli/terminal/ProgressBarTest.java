package dev.loupe.cli.terminal;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.List;
import org.junit.jupiter.api.Test;

/** When a bar shows, and how it goes. */
class ProgressBarTest {
  @Test
  void progressShowsOnATerminalOnlyAndGoesAway() throws InterruptedException {
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    InputStream none = InputStream.nullInputStream();
    Terminal terminal = Terminal.of(none, OutputStream.nullOutputStream(), err, true);
    Terminal pipe = Terminal.of(none, OutputStream.nullOutputStream(), err, false);
    ProgressBar shown = new ProgressBar(terminal, true, "reading");
    List<ProgressBar> hidden =
        List.of(
            new ProgressBar(terminal, false, "reading"), new ProgressBar(pipe, true, "reading"));
    ProgressBar brief = new ProgressBar(terminal, true, "brief");
    shown.update(1, 4);
    brief.update(1, 4);
    assertEquals("", err.toString(UTF_8), "short work needs no bar");
    brief.clear();
    for (int i = 0; i < 1000 && err.size() == 0; i++) {
      Thread.sleep(20);
    }
    assertTrue(err.toString(UTF_8).matches("\\rreading \\[\\.+]   0%"), "without any news");
    err.reset();

    for (ProgressBar bar : hidden) {
      bar.update(2, 4);
      bar.clear();
    }
    assertEquals("", err.toString(UTF_8));
    for (int i = 0; i < 1000 && err.size() == 0; i++) { // not drawn too often
      shown.update(2, 4);
      Thread.sleep(20);
    }
    String line = err.toString(UTF_8);
    assertTrue(line.startsWith("\rreading [####"), line);
    assertTrue(line.endsWith(" 50%"), line);
    assertTrue(line.length() < 55, "fits a narrow window");
    shown.update(4, 4);
    assertTrue(err.toString(UTF_8).endsWith("100%"), "the end shows even when it comes soon");
    err.reset();
    shown.clear();
    String cleared = err.toString(UTF_8);
    assertTrue(cleared.isBlank() && cleared.startsWith("\r") && cleared.endsWith("\r"));
    assertTrue(cleared.length() > line.length(), "all of it");
    assertFalse(cleared.contains("\n"));
  }
}
