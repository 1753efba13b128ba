package dev.loupe.chat;

import com.hubspot.jinjava.interpret.JinjavaInterpreter;
import com.hubspot.jinjava.lib.tag.Tag;
import com.hubspot.jinjava.tree.Node;
import com.hubspot.jinjava.tree.TagNode;

/** {@code generation}: marks what an assistant wrote, for training; here what is in it. */
final class GenerationTag implements Tag {
  private static final long serialVersionUID = 1L;

  @Override
  public String getName() {
    return "generation";
  }

  @Override
  public String getEndTagName() {
    return "endgeneration";
  }

  @Override
  public String interpret(TagNode tag, JinjavaInterpreter interpreter) {
    StringBuilder text = new StringBuilder();
    for (Node child : tag.getChildren()) {
      text.append(child.render(interpreter));
    }
    return text.toString();
  }
}
