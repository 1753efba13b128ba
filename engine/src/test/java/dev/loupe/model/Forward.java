package dev.loupe.model;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionRecorder;
import dev.loupe.attention.AttentionResult;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.AttentionPlan.Kind;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Pass;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.weights.config.Gpt2Config;
import java.util.Arrays;
import java.util.List;

/** Everything that a transformer computes for a sequence, cut into passes of chosen lengths. */
final class Forward {
  final float[][] logits; // [T, V]
  final float[][][][] attention; // [L, H, T, query + 1]
  final float[][][][] scores;
  final float[][][] hidden; // [L + 1, T, C]

  /**
   * @param passes tokens per pass; they sum to the number of ids
   * @param record whether to keep maps: without, {@link #attention} and {@link #scores} stay empty
   */
  Forward(Transformer model, int[] ids, int[] passes, boolean record) {
    Gpt2Config config = model.config();
    int t = ids.length;
    logits = new float[t][config.vocabSize()];
    attention = new float[config.nLayer()][config.nHead()][t][];
    scores = new float[config.nLayer()][config.nHead()][t][];
    hidden = new float[config.nLayer() + 1][t][config.nEmbd()];
    try (TensorArena arena = model.ops().arena()) {
      KvCache kv = new KvCache(arena, config.nLayer(), config.nHead(), config.headDim(), 1, t);
      Tensor out = arena.allocate(t, config.vocabSize());
      Activations all = Activations.allocate(arena, config, t);
      AttentionPlan plan = AttentionSelection.all().withScores().of(config);
      int ahead = model.ops().rebuildsAhead();
      // little, so that maps come in many pieces
      long scratch = ahead * plan.bytes(Kind.SCORES, 2, Math.ceilDiv(t, 16) * 16);
      AttentionResult kept =
          AttentionResult.allocate(AttentionSelection.all().withScores(), plan, t);
      AttentionRecorder maps =
          record
              ? new AttentionRecorder(
                  model.ops(), arena, plan, t, t, scratch, null, sequence -> List.of(kept))
              : null;
      int from = 0;
      for (int count : passes) {
        Batch batch = Batch.sequence(0, from, Arrays.copyOfRange(ids, from, from + count));
        Activations a = all.rows(count);
        int first = from;
        try (Pass pass = model.begin(batch, kv, Mask.CAUSAL)) {
          model.forward(
              pass,
              a,
              attention -> {
                // x still holds what the block began with
                read(model, a.x(), hidden[attention.layer()], first);
                if (maps != null) {
                  maps.observe(attention);
                }
              });
          if (maps != null) {
            maps.finish();
          }
          read(model, a.x(), hidden[config.nLayer()], first);
          Tensor rows = out.rows(0, count);
          model.logits(pass, a, 0, rows);
          read(model, rows, logits, first);
        }
        from += count;
      }
      if (record) {
        keep(kept.maps().orElseThrow(), attention);
        keep(kept.scores().orElseThrow(), scores);
      }
    }
  }

  private static void keep(AttentionMaps maps, float[][][][] to) {
    for (int layer = 0; layer < to.length; layer++) {
      for (int head = 0; head < to[layer].length; head++) {
        for (int query = 0; query < maps.tokens(); query++) {
          to[layer][head][query] = maps.row(layer, head, query);
        }
      }
    }
  }

  private static void read(Transformer model, Tensor from, float[][] to, int first) {
    for (int r = 0; r < from.rows(); r++) {
      model.ops().read(from, r, to[first + r], from.cols());
    }
  }

  static int[] whole(int t) {
    return new int[] {t};
  }

  static int[] single(int t) {
    int[] passes = new int[t];
    Arrays.fill(passes, 1);
    return passes;
  }

  /** A prompt of about two thirds, then token by token. */
  static int[] prefillAndDecode(int t) {
    int prompt = Math.max(1, t * 2 / 3);
    int[] passes = new int[t - prompt + 1];
    Arrays.fill(passes, 1);
    passes[0] = prompt;
    return passes;
  }
}
