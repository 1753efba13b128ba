package dev.loupe.weights.torch;

import dev.loupe.weights.config.Anchor;
import dev.loupe.weights.config.OtherModels;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.StrictJson;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The dict of a model's tensors within what {@code torch.save} wrote: the file's whole object, or a
 * dict at any level of it, as under {@code state_dict} or {@code model_state_dict}. It is the one
 * that holds the {@link Anchor}.
 */
final class StateDict {
  private static final int DEEPEST = 16;
  private static final int MOST_NAMES = 1000;

  private final Map<String, Map<String, TorchTensor>> found = new LinkedHashMap<>(); // by its place
  private final List<String> names = new ArrayList<>(); // of tensors anywhere, for messages
  private final Set<Object> seen = Collections.newSetFromMap(new IdentityHashMap<>());

  private StateDict() {}

  /**
   * Its tensors, in its order.
   *
   * @throws CheckpointException if there is none, or more than one
   */
  static Map<String, TorchTensor> of(TorchFile torch) throws CheckpointException {
    Map<String, Object> root = torch.root();
    StateDict search = new StateDict();
    search.visit("", root, 0);
    List<Map<String, TorchTensor>> dicts = new ArrayList<>(search.found.values());
    if (dicts.size() > 1) {
      List<String> places = List.copyOf(search.found.keySet());
      throw new CheckpointException(
          "%s holds more than one GPT-2: in its dicts \"%s\" and \"%s\"; save one of them alone"
              .formatted(torch.file().path(), places.get(0), places.get(1)));
    }
    if (!dicts.isEmpty()) {
      return dicts.getFirst();
    }
    OtherModels.refuse(torch.file().path(), search.names);
    Map<String, TorchTensor> tensors = TorchFile.tensors(root);
    if (tensors.isEmpty()) {
      throw new CheckpointException(
          "%s holds no dict with the tensors of a GPT-2%s"
              .formatted(
                  torch.file().path(),
                  root.isEmpty()
                      ? ""
                      : "; it starts with " + StrictJson.shown(root.keySet().iterator().next())));
    }
    return tensors;
  }

  private void visit(String place, Map<String, Object> dict, int depth) {
    if (depth > DEEPEST || !seen.add(dict)) {
      return; // dicts of a pickle may contain themselves
    }
    Map<String, TorchTensor> tensors = TorchFile.tensors(dict);
    if (Anchor.isHere(tensors.keySet())) {
      found.put(place, tensors);
    }
    tensors.keySet().stream()
        .limit(MOST_NAMES - names.size())
        .forEach(name -> names.add(joined(place, name)));
    dict.forEach(
        (name, value) ->
            TorchFile.dict(value).ifPresent(inner -> visit(joined(place, name), inner, depth + 1)));
  }

  private static String joined(String place, String name) {
    String shown = StrictJson.shown(name); // short, whatever the file says
    return place.isEmpty() ? shown : place + "." + shown;
  }
}
