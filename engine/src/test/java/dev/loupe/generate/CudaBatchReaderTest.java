package dev.loupe.generate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.OnGpu;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadScore;
import dev.loupe.generate.BatchReader.Result;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Texts read many at a time on the GPU, against the same on the CPU. */
@OnGpu
class CudaBatchReaderTest {
  @TempDir Path folder;

  private static List<Result> all(BatchReader reader, List<int[]> texts) {
    List<Result> results = new ArrayList<>();
    reader.read(texts.iterator()).forEachRemaining(results::add);
    return results;
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 300})
  void asOnTheCpu(int budget) throws Exception {
    Random random = new Random(3);
    List<int[]> texts = new ArrayList<>();
    for (int length : new int[] {17, 1, 64, 2, 0, 65, 128, 129, 33, 16}) {
      texts.add(random.ints(length, 0, 60).toArray());
    }
    AttentionSelection some = AttentionSelection.all().withValueNorms();
    Path tiny = TinyModel.in(folder).folder();
    try (Loupe cpu = Loupe.open(tiny, Options.defaults().backend(Backend.CPU));
        Loupe gpu = Loupe.open(tiny, Options.defaults().backend(Backend.CUDA));
        BatchReader reference = cpu.batchReader(Optional.of(some), true, budget);
        BatchReader reader = gpu.batchReader(Optional.of(some), true, budget)) {
      List<Result> expected = all(reference, texts);
      List<Result> actual = all(reader, texts);
      assertEquals(texts.size(), actual.size());
      for (int i = 0; i < texts.size(); i++) {
        Result e = expected.get(i);
        Result a = actual.get(i);
        assertEquals(e.tokens(), a.tokens());
        assertEquals(e.error(), a.error());
        assertEquals(e.logprob(), a.logprob(), 1e-4 * texts.get(i).length);
        if (e.error().isPresent()) {
          assertTrue(a.heads().isEmpty());
          continue;
        }
        AttentionRows.close(e.heads().orElseThrow(), a.heads().orElseThrow(), 1e-5);
        for (HeadScore score : HeadScore.values()) {
          assertEquals(
              e.heads().orElseThrow().score(score, 1, 0),
              a.heads().orElseThrow().score(score, 1, 0),
              1e-4,
              score.key());
        }
      }
    }
  }

  @Test
  void nanIsOfTheTextsThatHoldTheToken() throws Exception {
    TinyModel broken = TinyModel.in(folder);
    broken.poke("wte.weight", 64 * 500 + 3, Float.NaN); // 64 wide
    List<int[]> texts = List.of(new int[70], new int[] {1, 500, 2}, new int[70], new int[3]);
    try (Loupe gpu = Loupe.open(folder, Options.defaults().backend(Backend.CUDA));
        BatchReader reader = gpu.batchReader(Optional.of(AttentionSelection.all()), false, 200)) {
      for (int again = 0; again < 2; again++) {
        List<Result> results = all(reader, texts);
        for (int i = 0; i < texts.size(); i++) {
          Optional<String> error =
              i == 1 ? Optional.of("the model computes NaN") : Optional.empty();
          assertEquals(error, results.get(i).error(), "text " + i);
        }
        AttentionRows.close(
            results.get(0).heads().orElseThrow(), results.get(2).heads().orElseThrow(), 0);
      }
    }
  }
}
