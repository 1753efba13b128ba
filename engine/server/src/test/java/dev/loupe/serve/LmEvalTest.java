package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.model.Golden;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * lm-evaluation-harness gets of a server what its own backend, transformers, says of the same
 * model. Needs a Python, LOUPE_LM_EVAL, in which {@code lm_eval}, torch and transformers are.
 */
@Timeout(600)
class LmEvalTest {
  private static final double TOLERANCE = 2e-4; // float32 on both sides, sums of up to 400 tokens

  @TempDir Path folder;

  @Test
  void getsTheSameAsFromTransformers() throws Exception {
    String python = System.getenv("LOUPE_LM_EVAL");
    assumeTrue(python != null, "LOUPE_LM_EVAL names no Python with lm_eval");
    Path script = folder.resolve("lm-eval.py");
    try (InputStream in = LmEvalTest.class.getResourceAsStream("lm-eval.py")) {
      Files.write(script, Objects.requireNonNull(in).readAllBytes());
    }
    try (Served served = Served.start(Served.options())) {
      Process process =
          new ProcessBuilder(
                  String.valueOf(python),
                  script.toString(),
                  Golden.DEMO_MODEL.toAbsolutePath().toString(),
                  Served.MODEL,
                  served.server().address())
              .redirectError(folder.resolve("err").toFile())
              .start();
      String out = new String(process.getInputStream().readAllBytes(), UTF_8);
      assertTrue(process.waitFor(100, TimeUnit.SECONDS));
      assertEquals(0, process.exitValue(), () -> out + read(folder.resolve("err")));
      JsonObject said = JsonParser.parseString(out.lines().toList().getLast()).getAsJsonObject();
      JsonObject hf = said.getAsJsonObject("hf");
      for (String backend : List.of("huggingface", "remote")) {
        JsonObject loupe = said.getAsJsonObject(backend);
        JsonArray wanted = hf.getAsJsonArray("loglikelihood");
        JsonArray given = loupe.getAsJsonArray("loglikelihood");
        assertEquals(4, wanted.size());
        for (int i = 0; i < wanted.size(); i++) {
          JsonArray w = wanted.get(i).getAsJsonArray();
          JsonArray g = given.get(i).getAsJsonArray();
          assertEquals(w.get(0).getAsDouble(), g.get(0).getAsDouble(), TOLERANCE);
          assertEquals(w.get(1), g.get(1), "whether it is the likeliest");
        }
        wanted = hf.getAsJsonArray("rolling");
        given = loupe.getAsJsonArray("rolling");
        assertEquals(2, wanted.size());
        for (int i = 0; i < wanted.size(); i++) {
          assertEquals(wanted.get(i).getAsDouble(), given.get(i).getAsDouble(), TOLERANCE);
        }
        assertEquals(hf.get("generate_until"), loupe.get("generate_until"));
      }
    }
  }

  private static String read(Path file) {
    try {
      return Files.readString(file);
    } catch (IOException e) {
      return e.toString();
    }
  }
}
