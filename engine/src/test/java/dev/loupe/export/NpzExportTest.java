package dev.loupe.export;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.generate.Generation;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class NpzExportTest {
  @TempDir Path folder;

  private Npz export(Generation run) throws IOException {
    Path file = folder.resolve("run.npz");
    AttentionFormat.NPZ.write(run, file);
    return Npz.read(file);
  }

  private static void assertSquares(Npz.Npy array, AttentionMaps maps, float above) {
    boolean halves = maps.dtype() == DType.F16;
    for (int layer : maps.layers()) {
      for (int head : maps.heads()) {
        for (int query = 0; query < maps.tokens(); query++) {
          float[] row = maps.row(layer, head, query);
          for (int key = 0; key < maps.tokens(); key++) {
            float expected = key <= query ? row[key] : above;
            float found =
                halves ? Float.float16ToFloat(array.data().getShort()) : array.data().getFloat();
            assertEquals(expected, found, layer + "." + head + " " + query + " " + key);
          }
        }
      }
    }
    assertEquals(0, array.data().remaining());
  }

  @Test
  void everyArrayIsWhatItsNameSays() throws IOException {
    String[] labels = {"·a", "", "\uD83D\uDE00€", "\\n", "<|endoftext|>"};
    Generation run = Runs.random(new int[] {1, 3}, new int[] {0, 2, 5}, 2, true, labels);
    Npz npz = export(run);
    assertEquals(
        List.of(
            "attention",
            "scores",
            "layers",
            "heads",
            "token_ids",
            "tokens",
            "prompt_len",
            "logprobs"),
        List.copyOf(npz.arrays().keySet()));
    assertEquals("2, 3, 5, 5", npz.get("attention").shape());
    assertEquals("<f4", npz.get("attention").descr());
    assertSquares(npz.get("attention"), run.attention(), 0);
    assertSquares(npz.get("scores"), run.scores().orElseThrow(), Float.NEGATIVE_INFINITY);
    assertEquals("<i4 [2,]", npz.get("layers").kind());
    assertEquals(1, npz.get("layers").data().getInt());
    assertEquals(3, npz.get("layers").data().getInt());
    assertEquals(5, npz.get("heads").data().getInt(8));
    assertEquals("<i8 [5,]", npz.get("token_ids").kind());
    assertEquals(104, npz.get("token_ids").data().getLong(32));
    assertEquals("<i8 []", npz.get("prompt_len").kind());
    assertEquals(2, npz.get("prompt_len").data().getLong());
    assertEquals("<f4 [5,]", npz.get("logprobs").kind());
    assertTrue(Float.isNaN(npz.get("logprobs").data().getFloat()));
    assertEquals(-0.25f, npz.get("logprobs").data().getFloat());
    assertEquals("<U13 [5,]", npz.get("tokens").kind());
    assertEquals(List.of(labels), strings(npz.get("tokens"), 13));
  }

  private static List<String> strings(Npz.Npy array, int width) {
    List<String> strings = new ArrayList<>();
    while (array.data().hasRemaining()) {
      StringBuilder string = new StringBuilder();
      for (int i = 0; i < width; i++) {
        int codePoint = array.data().getInt();
        if (codePoint != 0) {
          string.appendCodePoint(codePoint);
        }
      }
      strings.add(string.toString());
    }
    return strings;
  }

  @Test
  void oneTokenOneHead() throws IOException {
    Npz npz = export(Runs.random(new int[] {7}, new int[] {4}, 1, false, ""));
    assertEquals("1, 1, 1, 1", npz.get("attention").shape());
    assertEquals(1f, npz.get("attention").data().getFloat());
    assertEquals(7, npz.get("layers").data().getInt());
    assertEquals(4, npz.get("heads").data().getInt());
    assertEquals("<U1", npz.get("tokens").descr()); // numpy has no strings of width 0 in files
    assertEquals(7, npz.arrays().size());
  }

  @Test
  void mapsOfHalvesStayHalves() throws IOException {
    Generation run =
        Runs.random(DType.F16, new int[] {0}, new int[] {0, 1}, 3, true, Runs.labels(40));
    Npz npz = export(run);
    assertEquals("<f2", npz.get("attention").descr());
    assertSquares(npz.get("attention"), run.attention(), 0);
    assertEquals("<f4", npz.get("scores").descr());
  }

  @Test
  void rowsLongerThanTheBufferArriveWhole() throws IOException {
    int t = 9; // 97,200 bytes in rows of 36: the chunk of 65,536 ends within a row
    int[] heads = new int[300];
    for (int h = 0; h < heads.length; h++) {
      heads[h] = h;
    }
    Generation run = Runs.random(new int[] {0}, heads, 3, false, Runs.labels(t));
    assertSquares(export(run).get("attention"), run.attention(), 0);
  }

  @Test
  void numpyReadsItWithoutPickle() throws IOException, InterruptedException {
    assumeTrue(python("import numpy").isEmpty(), "python3 with numpy is not installed here");
    Path file = folder.resolve("run.npz");
    Generation run = Runs.golden("t33");
    AttentionFormat.NPZ.write(run, file);
    String found =
        python(
            """
            import numpy as np, sys
            z = np.load(r'%s', allow_pickle=False)
            a, s = z['attention'], z['scores']
            assert a.shape == (6, 3, 33, 33) and a.dtype == np.float32, a.shape
            assert np.abs(a.sum(-1) - 1).max() < 1e-5
            assert (np.triu(a, 1) == 0).all()
            assert np.isneginf(s[..., 3, 4:]).all()
            e = np.exp(s - s.max(-1, keepdims=True))
            assert np.abs(e / e.sum(-1, keepdims=True) - a).max() < 1e-5
            assert z['tokens'].tolist()[7] == '\\u00b7can' and int(z['prompt_len']) == 22
            assert z['token_ids'].dtype == np.int64 and np.isnan(z['logprobs'][0])
            assert z['layers'].tolist() == [0, 1, 2, 3, 4, 5] and z['layers'].dtype == np.int32
            """
                .formatted(file));
    assertEquals("", found);
  }

  /** What python prints, or that it is not there. */
  private static String python(String code) throws IOException, InterruptedException {
    try {
      Process process = new ProcessBuilder("python3", "-c", code).redirectErrorStream(true).start();
      String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      assertTrue(process.waitFor(100, TimeUnit.SECONDS));
      return process.exitValue() == 0 ? printed : "exit " + process.exitValue() + printed;
    } catch (IOException notInstalled) {
      return notInstalled.toString();
    }
  }

  @Test
  void aWriterThatWritesTooLittleIsCaught() throws IOException {
    Path file = folder.resolve("short.npz");
    Files.createFile(file);
    String message =
        assertThrows(
                IllegalStateException.class,
                () -> {
                  try (NpzWriter npz = new NpzWriter(file)) {
                    npz.array("x", NpzWriter.Type.I8, new long[] {3}, out -> out.putLong(1));
                  }
                })
            .getMessage();
    assertEquals("x of shape [3] takes 24 bytes, but 8 were written", message);
  }
}
